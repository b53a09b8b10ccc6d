// Plans that gave a wrong result or faulted here: remembered over restarts, told the store until it has heard, and
// shown to the compile service, whose own finding is enough for the fleet.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/base/limits.h"
#include "common/base/transient.h"
#include "vm-worker/tiering/tier_controller.h"

namespace kiln {
namespace {

constexpr int64_t kReproduceRetryFirstMs = 1'000, kReproduceRetryMaxMs = 60'000;
constexpr int kReproduceTriesMax = 10;  // some six minutes; a second worker may meet the plan all the same

}  // namespace

void TierController::Accuse(const ModelState& state, const ShadowVerdict& verdict, const Digest& contents,
                            cache::ReportKind kind) {
  const PlanKey key = verdict.plan->key();
  fetch_lane_->Post("remembering plan " + key.ShortHex(),
                    [services = services_, mark = PlanServices::Mark{key, contents}] { services->Remember(mark); });
  if (accusations_.size() < limits::kAccusationsMax)
    accusations_.try_emplace(key, Accusation{kind, verdict.detail, contents, false});
  TellAccusations();
  // The compile service has no device to run it on.
  if (verdict.plan->on_device() || !services_->CanCompile() || reproductions_.size() >= limits::kAccusationsMax) return;
  const Segment& segment = verdict.plan->segment();
  Result<std::vector<uint8_t>> bytes = EncodeSegment(segment);
  if (!bytes.has_value())
    return spdlog::warn("model {}: segment {}: plan {} cannot be reproduced: {}", state.model->name(),
                        segment.id.ShortHex(), key.ShortHex(), ToString(bytes.error()));
  const uint64_t seed = DigestHash{}(contents);
  reproductions_.try_emplace(key,
                             Reproduction{{std::move(*bytes), key, contents, verdict.inputs, verdict.parameters, seed},
                                          state.model->name(),
                                          segment.id});
  AskToReproduce();
}

void TierController::TellAccusations() {
  for (auto& [key, accusation] : accusations_) {
    if (accusation.under_way) continue;
    accusation.under_way = true;
    services_->Report({key, accusation.kind, 1, options_.reporter, accusation.detail, accusation.contents},
                      [this, mailbox = mailbox_, key = key](Result<cache::ReportReply> reply) {
                        // A store that has no such plan has nothing to hide.
                        const bool heard = reply.has_value() || reply.error().code == ErrorCode::kNotFound;
                        mailbox->Post([this, key, heard] {
                          const auto it = accusations_.find(key);
                          if (it == accusations_.end()) return;
                          it->second.under_way = false;
                          if (!heard) return;
                          accusations_.erase(it);
                          fetch_lane_->Post("remembering that plan " + key.ShortHex() + " was told of",
                                            [services = services_, key] { services->Told(key); });
                        });
                      });
  }
}

void TierController::AskToReproduce() {
  for (auto& [key, reproduction] : reproductions_) {
    if (reproduction.under_way || Now() < reproduction.retry_ns) continue;
    reproduction.under_way = true;
    ++reproduction.tries;
    services_->Reproduce(reproduction.request, [this, mailbox = mailbox_, key = key](Result<ReproduceReply> reply) {
      mailbox->Post([this, key, reply = std::move(reply)] { OnReproduced(key, reply); });
    });
  }
}

void TierController::OnReproduced(const PlanKey& key, const Result<ReproduceReply>& reply) {
  const auto it = reproductions_.find(key);
  if (it == reproductions_.end()) return;
  Reproduction& reproduction = it->second;
  reproduction.under_way = false;
  if (!reply.has_value() && IsTransient(reply.error().code) && reproduction.tries < kReproduceTriesMax) {
    const int64_t wait_ms = std::min(kReproduceRetryFirstMs << (reproduction.tries - 1), kReproduceRetryMaxMs);
    reproduction.retry_ns = Now() + wait_ms * 1'000'000;
    return;
  }
  std::string text;
  if (reply.has_value()) {
    ++stats_.reproductions[static_cast<size_t>(reply->verdict.outcome)];
    text = std::string(ReproduceOutcomeText(reply->verdict.outcome)) + ", " + reply->verdict.detail +
           (reply->quarantined ? "; no worker uses the plan any more" : "; other workers may use it");
  } else {
    text = "it could not tell: " + ToString(reply.error());
  }
  spdlog::warn("model {}: segment {}: plan {} was wrong here; the compile service ran it: {}", reproduction.model,
               reproduction.segment.ShortHex(), key.ShortHex(), text);
  for (ModelState& state : models_)
    if (const auto group = state.groups.find(reproduction.segment); group != state.groups.end())
      group->second.reproduction = text;
  reproductions_.erase(it);
}

}  // namespace kiln
