// What the store announces: published, quarantined, purged.
#include <spdlog/spdlog.h>

#include "vm-worker/tiering/tier_controller.h"

namespace kiln {

void TierController::ReadChangeLog() {
  log_pending_ = true;
  services_->ReadChangeLog({log_position_, 0}, [this, mailbox = mailbox_](Result<cache::ChangeLogReply> reply) {
    mailbox->Post([this, reply = std::move(reply)] { OnChangeLog(reply); });
  });
}

void TierController::OnChangeLog(const Result<cache::ChangeLogReply>& reply) {
  log_pending_ = false;
  next_log_read_ns_ = Now() + options_.change_log_ms * 1'000'000;
  if (!reply.has_value()) return;
  TellAccusations();
  if (!log_position_known_ || reply->gap) {
    // What happened before is in the Variants lists, which are read (again) from here on.
    const bool lost = log_position_known_;
    log_position_known_ = true;
    log_position_ = reply->head;
    for (ModelState& state : models_)
      for (auto& [id, group] : state.groups) {
        group.variants_known = false;
        if (!lost) continue;
        group.AskAgain();
        group.rejected.LookAgainAtAll();
      }
    return;
  }
  for (const cache::ChangeEntry& change : reply->entries) {
    log_position_ = std::max(log_position_, change.sequence);
    OnChange(change);
  }
}

void TierController::OnChange(const cache::ChangeEntry& change) {
  switch (change.kind) {
    case cache::ChangeKind::kPublish:
    case cache::ChangeKind::kUnquarantine:
      for (ModelState& state : models_) {
        const auto it = state.groups.find(change.segment);
        if (it == state.groups.end()) continue;
        it->second.AskAgain();
        if (change.kind == cache::ChangeKind::kPublish)
          it->second.rejected.LookAgain(change.plan_key);
        else
          it->second.rejected.Lift(change.plan_key);
      }
      if (change.kind == cache::ChangeKind::kUnquarantine)
        fetch_lane_->Post([services = services_, key = change.plan_key] { services->Forgive(key); });
      break;
    case cache::ChangeKind::kQuarantine:
      DropEverywhere(change.plan_key, MissReason::kQuarantined, "the store announced: quarantine", Blame::kContents);
      break;
    case cache::ChangeKind::kPurge:
      // Not a word against its contents: what is compiled next may be the same.
      DropEverywhere(change.plan_key, MissReason::kQuarantined, "the store announced: purge", Blame::kNone);
      for (ModelState& state : models_)
        for (auto& [id, group] : state.groups)
          if (group.rejected.LookAgain(change.plan_key)) group.AskAgain();
      break;
    case cache::ChangeKind::kEvict:
    case cache::ChangeKind::kDamaged:
      break;
  }
}

void TierController::RecheckSigners() {
  if (services_ == nullptr) return;
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups) {
      std::vector<PlanKey> revoked;
      for (const auto& [key, entry] : group.plans)
        if (!services_->Trusts(entry.signer)) revoked.push_back(key);
      for (const PlanKey& key : revoked)
        Drop(state, group, key, MissReason::kQuarantined, "its signer is not believed any more", Blame::kNone);
      // Of those that were refused for their signer, some may be believed now.
      group.rejected.LookAgainAtAll();
      group.AskAgain();
    }
}

}  // namespace kiln
