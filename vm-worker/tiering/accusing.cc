// Plans that gave a wrong result or faulted here: remembered over restarts, and told the store until it has heard.
#include <algorithm>

#include "common/base/limits.h"
#include "vm-worker/tiering/tier_controller.h"

namespace kiln {
namespace {}  // namespace

void TierController::Accuse(const PlanKey& key, const Digest& contents, cache::ReportKind kind,
                            const std::string& detail) {
  fetch_lane_->Post([services = services_, mark = PlanServices::Mark{key, contents}] { services->Remember(mark); });
  if (accusations_.size() < limits::kAccusationsMax)
    accusations_.try_emplace(key, Accusation{kind, detail, contents, false});
  TellAccusations();
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
                          fetch_lane_->Post([services = services_, key] { services->Told(key); });
                        });
                      });
  }
}

}  // namespace kiln
