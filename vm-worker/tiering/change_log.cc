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
  // A reply has its own limit: what is left is read at once.
  if (!reply->gap && !reply->entries.empty() && reply->entries.back().sequence < reply->head) next_log_read_ns_ = 0;
  TellAccusations();
  if (!log_position_known_ || reply->gap) {
    // What was published before is in the Variants lists, which are read (again) from here on. What was withdrawn is in
    // none of them: plans of this worker that they leave out are asked about one by one.
    const bool lost = log_position_known_;
    log_position_known_ = true;
    log_position_ = reply->head;
    for (ModelState& state : models_)
      for (auto& [id, group] : state.groups) {
        group.DoubtAll();
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
      for (ModelState& state : models_) {
        const auto it = state.groups.find(change.segment);
        if (it == state.groups.end()) continue;
        Group& group = it->second;
        group.AskAgain();
        group.Overtake(change.plan_key);
        group.rejected.LookAgain(change.plan_key);
      }
      break;
    case cache::ChangeKind::kUnquarantine:
      OnLifted(change);
      break;
    case cache::ChangeKind::kQuarantine:
      Withdraw(change.plan_key);
      DropEverywhere(change.plan_key, MissReason::kQuarantined, "the store announced: quarantine", Blame::kContents);
      break;
    case cache::ChangeKind::kPurge:
      Withdraw(change.plan_key);
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

void TierController::OnLifted(const cache::ChangeEntry& change) {
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups) {
      // A mark that outlived its plan names no segment.
      if (!change.segment.IsZero() && change.segment != id) continue;
      group.AskAgain();
      group.Overtake(change.plan_key);
      group.rejected.Lift(change.plan_key);
      group.ForgetRefusals();
      if (group.trouble == MissReason::kQuarantined) group.ServicesAnswer();
    }
  fetch_lane_->Post("forgiving plan " + change.plan_key.ShortHex(),
                    [services = services_, key = change.plan_key] { services->Forgive(key); });
}

// Neither what is under way of the key nor the disk's copy of its record is used any more.
void TierController::Withdraw(const PlanKey& key) {
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups) group.Overtake(key);
  fetch_lane_->Post("forgetting plan " + key.ShortHex(), [services = services_, key] { services->Forget(key); });
}

// The plans that the store's list left out and that may have been withdrawn meanwhile.
void TierController::AskAboutDoubted(ModelState& state, Group& group) {
  for (auto it = group.doubted.begin(); it != group.doubted.end();) {
    const PlanKey key = *it;
    auto ask = [this, services = services_, mailbox = mailbox_, key, model = std::weak_ptr<Model>(state.model),
                id = group.id] {
      const Status standing = services->Standing(key);
      mailbox->Post([this, model, id, key, standing] {
        if (const auto place = Find(model, id)) OnStanding(*place->state, *place->group, key, standing);
      });
    };
    const bool posted =
        group.plans.contains(key) && fetch_lane_->Post("asking about plan " + key.ShortHex(), std::move(ask));
    if (posted || !group.plans.contains(key)) {
      it = group.doubted.erase(it);
    } else {
      group.variants_known = false;  // no room on the lane: met again with the next list
      ++it;
    }
  }
}

void TierController::OnStanding(ModelState& state, Group& group, const PlanKey& key, const Status& standing) {
  if (standing.has_value() || standing.error().code == ErrorCode::kNotFound) return;  // there, or evicted
  if (standing.error().code == ErrorCode::kQuarantined)
    return Drop(state, group, key, MissReason::kQuarantined, "the store says: " + standing.error().message,
                Blame::kContents);
  if (!group.plans.contains(key)) return;
  group.doubted.insert(key);
  group.ListAgain();
  BackOff(state, group, MissReason::kNoService, standing.error());
}

void TierController::RecheckSigners() {
  if (services_ == nullptr) return;
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups) {
      for (auto& [key, under_way] : group.fetching) under_way.overtaken = true;
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
