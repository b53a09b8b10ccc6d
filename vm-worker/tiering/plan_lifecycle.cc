// What becomes of the plans of a segment: fetched, linked, shadow-checked, published, withdrawn.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "vm-worker/dispatch/gdb_symbols.h"
#include "vm-worker/tiering/tier_controller.h"

namespace kiln {
namespace {

bool IsExactPlan(const Plan& plan, const Segment& segment) {
  if (segment.symbols.empty()) return false;
  for (size_t i = 0; i < plan.guard.symbols.size(); ++i)
    if (segment.symbols[i].kind != SymbolSource::Kind::kValueDim &&
        plan.guard.symbols[i].min != plan.guard.symbols[i].max)
      return false;
  return true;
}

}  // namespace

// Its bytes are checked and its code is mapped elsewhere; Install follows as an event.
void TierController::Fetch(ModelState& state, Group& group, const PlanKey& key, const Evidence& evidence) {
  if (source_ == nullptr || group.plans.contains(key) || !group.fetching.insert(key).second) return;
  source_->FetchAsync(key, group.id, options_.store_deadline_ms,
                      [this, mailbox = mailbox_, model = std::weak_ptr<Model>(state.model), id = group.id, key,
                       evidence](Result<FetchedPlan> fetched) {
                        mailbox->Post([this, model, id, key, evidence, fetched = std::move(fetched)] {
                          ModelState* state = Find(model);
                          if (state == nullptr) return;
                          Group& group = state->groups[id];
                          group.fetching.erase(key);
                          Install(*state, group, key, evidence, fetched);
                        });
                      });
}

void TierController::Install(ModelState& state, Group& group, const PlanKey& key, const Evidence& evidence,
                             Result<FetchedPlan> fetched) {
  if (group.plans.contains(key)) return;  // withdrawn while it was on its way
  if (fetched.has_value() && !source_->Trusts(fetched->signer))
    fetched = Fail(ErrorCode::kIntegrityFailure, "the signer of plan " + key.ShortHex() + " is not trusted any more");
  if (!fetched.has_value()) {
    const bool unreachable = IsUnreachable(fetched.error().code);
    if (unreachable) AskVariantsAgain(group);
    if (!unreachable) ++stats_.rejected;
    return BackOff(group, unreachable ? MissReason::kNoService : MissReason::kCompileFailed, fetched.error());
  }
  ++stats_.fetched;
  stats_.fetched_from_disk += fetched->from_disk ? 1 : 0;
  PlanEntry entry;
  entry.exact = IsExactPlan(*fetched->plan, *group.segment);
  entry.signer = fetched->signer;
  // Other workers' exact plans for shapes of theirs must not fill the slot; general plans always find room beside them.
  const auto held = std::count_if(group.plans.begin(), group.plans.end(),
                                  [](const auto& p) { return p.second.state != PlanState::kRejected; });
  if (static_cast<size_t>(held) >= (entry.exact ? options_.policy.plans_max : limits::kSlotPlansMax)) {
    group.plans[key] = {};
    return;
  }
  if (options_.gdb_symbols) fetched->code = NameForGdb(state.model->name(), *fetched->plan, std::move(fetched->code));
  if (Status linked = Link(state, group, *fetched, entry); !linked.has_value()) {
    ++stats_.rejected;
    group.plans[key] = {};
    return BackOff(group, MissReason::kCompileFailed, linked.error());
  }
  if (options_.perf_map != nullptr) options_.perf_map->Add(state.model->name(), *fetched->plan, *fetched->code);
  // Another worker's clean runs count; the plan's own signature vouches for the record, the store for the reports.
  const bool proven =
      static_cast<int>(std::max(evidence.shadow_runs, fetched->evidence.shadow_runs)) >= options_.shadow_runs;
  PlanEntry& kept = group.plans[key] = std::move(entry);
  if (proven) {
    kept.state = PlanState::kPublished;
    ++stats_.published;
    PublishGroup(state, group);
  } else {
    kept.state = PlanState::kShadowing;
    if (group.reason != MissReason::kGuardFailed) group.reason = MissReason::kShadowing;
    RefreshShadow(state, group);
  }
}

Status TierController::Link(ModelState& state, Group& group, const FetchedPlan& fetched, PlanEntry& entry) {
  for (size_t site : group.sites) {
    ASSIGN_OR_RETURN(auto linked,
                     LinkedPlan::Link(fetched.plan, fetched.key, state.model->program().segments()[site], fetched.code,
                                      state.model->program().weights(static_cast<int>(site)), packer_, state.model));
    entry.linked.push_back(std::move(linked));
  }
  return {};
}

// Keeps one shadowing plan of the group in front of the dispatchers until it has its clean runs.
void TierController::RefreshShadow(ModelState& state, Group& group) {
  for (auto& [key, entry] : group.plans) {
    if (entry.state != PlanState::kShadowing) continue;
    for (size_t i = 0; i < group.sites.size(); ++i) {
      SegmentRuntime& runtime = state.model->runtime(group.sites[i]);
      const LinkedPlan* now = runtime.shadowed.load();
      if (now == nullptr) runtime.shadowed.store(entry.linked[i].get());
      if (runtime.shadowed.load() == entry.linked[i].get() && runtime.shadow_wanted.load() <= 0)
        runtime.shadow_wanted.store(std::max(1, options_.shadow_runs - entry.clean));
    }
    return;
  }
}

void TierController::EndShadow(ModelState& state, Group& group, PlanEntry& entry) {
  for (size_t i = 0; i < group.sites.size(); ++i) {
    SegmentRuntime& runtime = state.model->runtime(group.sites[i]);
    if (runtime.shadowed.load() != entry.linked[i].get()) continue;
    runtime.shadow_wanted.store(0);
    runtime.shadowed.store(nullptr);
  }
}

void TierController::PublishGroup(ModelState& state, Group& group) {
  for (size_t i = 0; i < group.sites.size(); ++i) {
    std::vector<std::shared_ptr<const LinkedPlan>> plans;
    for (const auto& [key, entry] : group.plans)
      if (entry.state == PlanState::kPublished) plans.push_back(entry.linked[i]);
    state.model->runtime(group.sites[i]).slot.Publish(std::move(plans));
  }
  group.reason = MissReason::kGuardFailed;
  group.detail.clear();
}

void TierController::OnVerdict(const ShadowVerdict& verdict) {
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups) {
      const auto it = group.plans.find(verdict.plan->key());
      if (it == group.plans.end() || it->second.state != PlanState::kShadowing) continue;
      PlanEntry& entry = it->second;
      if (std::none_of(entry.linked.begin(), entry.linked.end(),
                       [&](const auto& linked) { return linked == verdict.plan; }))
        continue;
      if (verdict.undecided) return;  // the next sample tells
      if (!verdict.clean) {
        ++stats_.shadow_mismatches;
        const PlanKey key = it->first;
        store_->Call(cache::ReportRequest{key, cache::ReportKind::kMismatch, 1, options_.reporter, verdict.detail},
                     options_.store_deadline_ms, [](Result<cache::ReportReply>) {});
        return Drop(key, MissReason::kQuarantined, verdict.detail);
      }
      ++stats_.shadow_clean;
      if (++entry.clean < options_.shadow_runs) return;
      EndShadow(state, group, entry);
      entry.state = PlanState::kPublished;
      ++stats_.published;
      PublishGroup(state, group);
      spdlog::info("model {}: plan {} published for segment {} after {} clean shadow runs", state.model->name(),
                   it->first.ShortHex(), id.ShortHex(), entry.clean);
      store_->Call(
          cache::ReportRequest{
              it->first, cache::ReportKind::kShadowOk, static_cast<uint32_t>(entry.clean), options_.reporter, {}},
          options_.store_deadline_ms, [](Result<cache::ReportReply>) {});
      return;
    }
}

// Takes a plan out of one group; calls that run it finish on it.
void TierController::Withdraw(ModelState& state, Group& group, PlanEntry& entry, MissReason reason,
                              const std::string& detail) {
  const bool published = entry.state == PlanState::kPublished;
  EndShadow(state, group, entry);
  for (auto& linked : entry.linked) epochs_.Retire(std::move(linked));
  entry = {};
  if (published) PublishGroup(state, group);
  group.reason = reason;
  group.detail = detail;
}

// Takes a plan out of every model, for good: one that is on its way is not installed either.
void TierController::Drop(const PlanKey& key, MissReason reason, const std::string& detail) {
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups) {
      const auto it = group.plans.find(key);
      if (it == group.plans.end()) {
        if (group.fetching.contains(key)) group.plans[key] = {};
        continue;
      }
      if (it->second.state == PlanState::kRejected) continue;
      Withdraw(state, group, it->second, reason, detail);
      ++stats_.quarantined;
      spdlog::warn("model {}: plan {} is not used any more ({}): {}", state.model->name(), key.ShortHex(),
                   MissReasonText(reason), detail);
    }
}

void TierController::OnSignersReplaced() {
  mailbox_->Post([this] { DropRevoked(); });
}

// The plan is forgotten rather than rejected: another record of it, or its signer, may be trusted later.
void TierController::DropRevoked() {
  if (source_ == nullptr) return;
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups)
      for (auto it = group.plans.begin(); it != group.plans.end();) {
        if (it->second.state == PlanState::kRejected || source_->Trusts(it->second.signer)) {
          ++it;
          continue;
        }
        const PlanKey key = it->first;
        Withdraw(state, group, it->second, MissReason::kRevoked,
                 "the signer of plan " + key.ShortHex() + " is not trusted any more");
        spdlog::warn("model {}: {}", state.model->name(), group.detail);
        it = group.plans.erase(it);
        AskVariantsAgain(group);
      }
}

}  // namespace kiln
