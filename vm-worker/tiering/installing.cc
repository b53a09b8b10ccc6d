// A plan on its way in and out: fetch and link on the fetch lane, shadow runs, publishing, dropping.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/base/caught.h"
#include "common/base/transient.h"
#include "vm-worker/dispatch/gdb_symbols.h"
#include "vm-worker/tiering/tier_controller.h"

namespace kiln {
namespace {

// How long a plan may stand in front of the dispatchers without a call that it admits while another waits.
constexpr int64_t kShadowTurnNs = 1'000'000'000;

}  // namespace

TierController::Wanted TierController::Want(ModelState& state, Group& group, const PlanKey& key,
                                            const Evidence& evidence, const std::vector<int64_t>& exact_wish,
                                            bool for_device) {
  if (group.plans.contains(key)) return Wanted::kThere;
  if (group.fetching.contains(key)) return Wanted::kFetching;
  if (const int64_t retry_ns = group.rejected.RetryNs(key, Now()); retry_ns > 0) {
    group.variants_again_ns = group.variants_again_ns == 0 ? retry_ns : std::min(group.variants_again_ns, retry_ns);
    return Wanted::kPaused;
  }
  FetchJob job{state.model,
               group.id,
               key,
               evidence,
               group.sites,
               group.rejected.ContentsOf(key),
               HasRoom(group, true),
               group.WeightsWanted(),
               for_device};
  // Plans of others do not leave for packed weights where a plan answers without them.
  const bool stands_in = !group.no_pack_room.empty() && group.HasGeneric();
  job.without_room = stands_in ? WithoutRoom::kGoWithout : WithoutRoom::kMakeRoom;
  std::string what =
      "model " + state.model->name() + ": segment " + group.id.ShortHex() + ": fetching plan " + key.ShortHex();
  const bool posted = fetch_lane_->Post(std::move(what), [this, mailbox = mailbox_, job = std::move(job)] {
    auto fetched = std::make_shared<Fetched>(FetchAndLink(job));
    mailbox->Post([this, model = job.model, id = job.segment, fetched] {
      if (const auto place = Find(model, id)) OnFetched(*place->state, *place->group, *fetched);
    });
  });
  if (posted) {
    group.fetching.emplace(key, Fetching{exact_wish});
  } else {
    group.ListAgain();  // so that it is met again
    BackOff(state, group, MissReason::kNoService, {ErrorCode::kBusy, "too many plans are being fetched", {}});
  }
  return Wanted::kFetching;
}

// On the fetch lane.
TierController::Fetched TierController::FetchAndLink(const FetchJob& job) {
  Fetched fetched;
  fetched.key = job.key;
  fetched.evidence = job.evidence;
  fetched.on_device = job.for_device;
  fetched.status = Caught([&]() -> Status {
    const std::shared_ptr<Model> model = job.model.lock();
    if (model == nullptr) return Fail(ErrorCode::kCancelled, "the model was unloaded");
    return FetchAndLink(job, model, fetched);
  });
  return fetched;
}

Status TierController::FetchAndLink(const FetchJob& job, const std::shared_ptr<Model>& model, Fetched& fetched) {
  ASSIGN_OR_RETURN(FetchedPlan plan, services_->Fetch(job.key, job.segment));
  fetched.contents = plan.contents;
  fetched.signer = plan.signer;
  fetched.from_disk = plan.from_disk;
  // Another worker's clean runs count; the plan's own signature vouches for the record, the store for the reports.
  fetched.evidence.shadow_runs = std::max(fetched.evidence.shadow_runs, plan.evidence.shadow_runs);
  if (plan.contents == job.rejected)
    return Fail(ErrorCode::kQuarantined, "plan " + job.key.ShortHex() + " is the one that was given up before");
  // Of a store that does not tell forms apart.
  if (plan.plan->weights != WeightForm::kPacked && plan.plan->weights != job.weights)
    return Fail(ErrorCode::kLimitExceeded,
                "plan " + job.key.ShortHex() + " reads weights as given; packed ones have room");
  fetched.on_device = plan.images != nullptr;
  std::shared_ptr<const DeviceKernels> kernels;
  if (fetched.on_device) {
    if (device_modules_ == nullptr) return Fail(ErrorCode::kTargetMismatch, "this worker has no device");
    ASSIGN_OR_RETURN(kernels, device_modules_->Load(*plan.images));
  } else if (options_.gdb_symbols) {
    plan.code = NameForGdb(model->name(), *plan.plan, std::move(plan.code));
  }
  for (size_t site : job.sites) {
    auto linked = LinkAt(site, job, model, plan, kernels);
    if (!linked.has_value()) {
      const bool no_room = linked.error().code == ErrorCode::kResourceExhausted;
      fetched.no_pack_room = no_room && !fetched.on_device && plan.plan->PacksWeights();
      return std::unexpected(linked.error());
    }
    // Other workers' exact plans for shapes of theirs must not fill the slot; a tuned one may be for a shape of ours.
    if ((*linked)->exact() && !(*linked)->segment().symbols.empty() && !job.exact_has_room && !plan.plan->tuned)
      return Fail(ErrorCode::kLimitExceeded, "the segment has as many plans as it may (--plans)");
    fetched.linked.push_back(*std::move(linked));
  }
  if (options_.perf_map != nullptr && !fetched.on_device) options_.perf_map->Add(model->name(), *plan.plan, *plan.code);
  return {};
}

Result<std::shared_ptr<const LinkedPlan>> TierController::LinkAt(size_t site, const FetchJob& job,
                                                                 const std::shared_ptr<Model>& model,
                                                                 const FetchedPlan& plan,
                                                                 const std::shared_ptr<const DeviceKernels>& kernels) {
  const Segment& segment = model->program().segments()[site];
  const std::span<const TensorRef> weights = model->program().weights(static_cast<int>(site));
  if (kernels != nullptr)
    return LinkedPlan::LinkOnDevice(plan.plan, plan.key, segment, kernels, weights, packer_, *device_weights_, model,
                                    job.without_room);
  return LinkedPlan::Link(plan.plan, plan.key, segment, plan.code, weights, packer_, model, job.without_room);
}

bool TierController::HasRoom(const Group& group, bool exact) const {
  return group.CountPlans() < (exact ? options_.policy.plans_max : limits::kSlotPlansMax);
}

void TierController::OnFetched(ModelState& state, Group& group, Fetched& fetched) {
  const auto under_way = group.fetching.extract(fetched.key);
  const std::vector<int64_t> exact_wish = under_way.empty() ? std::vector<int64_t>() : under_way.mapped().exact_wish;
  if (!under_way.empty() && under_way.mapped().overtaken) {
    group.exact_asked.erase(exact_wish);
    return group.AskAgain();
  }
  if (!fetched.status.has_value()) return OnNotFetched(state, group, fetched, exact_wish);
  const bool on_device = fetched.linked.front()->on_device();
  if (on_device && !HasDevice()) {  // lost meanwhile
    group.exact_asked.erase(exact_wish);
    return;
  }
  ++stats_.fetched;
  stats_.fetched_from_disk += fetched.from_disk ? 1 : 0;
  const bool exact = fetched.linked.front()->exact() && !group.segment->symbols.empty();
  if (!HasRoom(group, exact) && group.FindTwin(fetched.linked.front()->plan()) == nullptr)
    return Reject(state, group, fetched.key, fetched.contents, group.trouble, "no room for another plan", exact_wish,
                  !exact && !on_device);
  PlanEntry& entry = group.plans[fetched.key];
  entry.linked = std::move(fetched.linked);
  entry.contents = fetched.contents;
  entry.signer = fetched.signer;
  if (static_cast<int>(fetched.evidence.shadow_runs) >= options_.shadow_runs) {
    entry.sampled = true;
    return Publish(state, group, fetched.key, entry);
  }
  TurnShadow(state, group);
}

void TierController::OnNotFetched(ModelState& state, Group& group, const Fetched& fetched,
                                  const std::vector<int64_t>& exact_wish) {
  const Error& error = fetched.status.error();
  if (fetched.no_pack_room) {
    Reject(state, group, fetched.key, {}, MissReason::kNoPackRoom, ToString(error), exact_wish, false);
    return OnNoPackRoom(group, error.message);
  }
  const bool full = error.code == ErrorCode::kLimitExceeded;
  const bool came = fetched.contents != Digest{};  // then what failed is of the device, not of the store
  if (fetched.on_device && HasDevice() && !full &&
      (came ? error.code != ErrorCode::kUnavailable : !IsTransient(error.code)))
    return OnNoDevicePlan(state, group, fetched, exact_wish);
  if (IsTransient(error.code)) {
    group.ListAgain();  // so that it is met again
    return BackOff(state, group, MissReason::kNoService, error);
  }
  const MissReason reason = full ? group.trouble : ReasonOf(error.code);
  if (!full && reason == MissReason::kCompileFailed) ++stats_.rejected;
  Reject(state, group, fetched.key, fetched.contents, reason, ToString(error), exact_wish, !full && exact_wish.empty());
}

// One for the processor is asked for while it is paused.
void TierController::OnNoDevicePlan(ModelState& state, Group& group, const Fetched& fetched,
                                    const std::vector<int64_t>& exact_wish) {
  const Error& error = fetched.status.error();
  const bool came = fetched.contents != Digest{}, no_room = came && error.code == ErrorCode::kResourceExhausted;
  MissReason reason = ReasonOf(error.code);
  if (came && error.code != ErrorCode::kQuarantined)
    reason = no_room ? MissReason::kNoDeviceMemory : MissReason::kDeviceRefused;
  if (reason == MissReason::kCompileFailed || reason == MissReason::kDeviceRefused) ++stats_.rejected;
  Reject(state, group, fetched.key, no_room ? Digest{} : fetched.contents, reason, ToString(error), exact_wish, false);
  HoldDevice(group, (group.rejected.RetryNs(fetched.key, Now()) - Now()) / 1'000'000);
}

// A plan with packed weights has no room, or left for want of it. Where no other such plan stands in for it, one that
// reads them as given does: of the store, or asked for. The packed one is tried again after its pause.
void TierController::OnNoPackRoom(Group& group, const std::string& detail) {
  if (group.HasPackedGeneric()) return;
  group.SetNoPackRoom(detail);
  if (!group.HasGeneric()) group.AskAgain();
}

// One shadowing plan of the group stands in front of the dispatchers; it gives way when no call comes for it.
void TierController::TurnShadow(ModelState& state, Group& group) {
  PlanEntry *now = nullptr, *next = nullptr, *first = nullptr;
  for (auto& [key, entry] : group.plans) {
    if (entry.published) continue;
    if (first == nullptr) first = &entry;
    if (now != nullptr && next == nullptr) next = &entry;
    if (entry.in_shadow) now = &entry;
  }
  if (next == nullptr) next = first;
  if (next == nullptr) return;
  if (now != nullptr) {
    if (Now() - now->shadow_since_ns < kShadowTurnNs) return;
    // A wish may have been taken with a sample of the plan before it, or with one that came to nothing.
    const auto wanted = [&](size_t site) { return state.model->runtime(site).shadow_wanted.load() > 0; };
    if (next == now && std::any_of(group.sites.begin(), group.sites.end(), wanted)) return;
    EndShadow(state, group, *now);
  }
  BeginShadow(state, group, *next);
}

// Each site may hand in as many samples as are missing; together they are bounded by the shadow queue.
void TierController::BeginShadow(ModelState& state, Group& group, PlanEntry& entry) {
  entry.in_shadow = true;
  entry.shadow_since_ns = Now();
  for (size_t i = 0; i < group.sites.size(); ++i) {
    SegmentRuntime& runtime = state.model->runtime(group.sites[i]);
    runtime.shadowed.store(entry.linked[i].get());
    runtime.shadow_wanted.store(std::max(1, options_.shadow_runs - entry.clean));
  }
}

void TierController::EndShadow(ModelState& state, Group& group, PlanEntry& entry) {
  if (!entry.in_shadow) return;
  entry.in_shadow = false;
  for (size_t site : group.sites) {
    SegmentRuntime& runtime = state.model->runtime(site);
    runtime.shadow_wanted.store(0);
    runtime.shadowed.store(nullptr);
  }
}

void TierController::Publish(ModelState& state, Group& group, const PlanKey& key, PlanEntry& entry) {
  entry.published = true;
  group.rejected.Lift(key);
  const Plan& plan = entry.linked.front()->plan();
  if (plan.weights == WeightForm::kPacked && group.IsGeneral(key, plan.guard)) group.SetNoPackRoom("");
  ++stats_.published;
  PublishGroup(state, group);
}

void TierController::PublishGroup(ModelState& state, Group& group) {
  // Nobody ran a device's kernels before workers did: what they answer is looked at for as long as they do.
  const bool sampled = std::ranges::any_of(group.plans, [](const auto& plan) {
    return plan.second.published && (plan.second.sampled || plan.second.on_device());
  });
  for (size_t i = 0; i < group.sites.size(); ++i) {
    std::vector<std::shared_ptr<const LinkedPlan>> plans;
    for (const auto& [key, entry] : group.plans)
      if (entry.published && !group.IsReplaced(entry)) plans.push_back(entry.linked[i]);
    SegmentRuntime& runtime = state.model->runtime(group.sites[i]);
    runtime.slot.Publish(std::move(plans));
    runtime.sample_every.store(sampled ? options_.sample_every : 0);
  }
  group.OnPublished();
  group.trouble = MissReason::kCold;
  group.detail.clear();
}

// `exact_wish`: the values of an exact plan beside others. `generic`: nothing stands in for the plan, so the services
// are not asked for another before its pause is over.
void TierController::Reject(const ModelState& state, Group& group, const PlanKey& key, const Digest& contents,
                            MissReason reason, const std::string& detail, const std::vector<int64_t>& exact_wish,
                            bool generic) {
  const int64_t now = Now();
  const int64_t pause_ms = group.rejected.Reject(key, contents, {reason, detail}, now);
  group.trouble = reason;
  group.detail = detail;
  if (!exact_wish.empty()) group.exact_asked[exact_wish] = now + pause_ms * 1'000'000;
  group.variants_again_ns = now + pause_ms * 1'000'000;
  if (generic && !group.HasGeneric()) group.retry_ns = std::max(group.retry_ns, now + pause_ms * 1'000'000);
  spdlog::warn("model {}: segment {}: plan {} is not used ({}): {}; looked at again in {} ms", state.model->name(),
               group.id.ShortHex(), key.ShortHex(), MissReasonText(reason), detail, pause_ms);
}

// Takes a plan out; calls that run it finish on it.
void TierController::Drop(ModelState& state, Group& group, const PlanKey& key, MissReason reason,
                          const std::string& detail, Blame blame) {
  const auto it = group.plans.find(key);
  if (it == group.plans.end()) return;
  PlanEntry entry = std::move(it->second);
  const bool exact = entry.linked.front()->exact() && !group.segment->symbols.empty();
  const std::vector<int64_t> exact_wish = exact ? ExactValues(*entry.linked.front()) : std::vector<int64_t>();
  const bool on_device = entry.on_device();
  const bool packs = !on_device && entry.linked.front()->plan().PacksWeights();
  EndShadow(state, group, entry);
  group.plans.erase(it);
  if (entry.published) PublishGroup(state, group);
  for (auto& linked : entry.linked) epochs_.Retire(std::move(linked));
  ++(reason == MissReason::kNoMemory ? stats_.evicted : stats_.quarantined);
  Reject(state, group, key, blame == Blame::kContents ? entry.contents : Digest{}, reason, detail, exact_wish,
         !exact && !on_device);
  if (on_device) HoldDevice(group, (group.rejected.RetryNs(key, Now()) - Now()) / 1'000'000);
  if (reason == MissReason::kNoMemory && packs) OnNoPackRoom(group, detail);
}

void TierController::DropEverywhere(const PlanKey& key, MissReason reason, const std::string& detail, Blame blame) {
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups) Drop(state, group, key, reason, detail, blame);
}

void TierController::OnVerdict(const ShadowVerdict& verdict) {
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups) {
      const auto it = group.plans.find(verdict.plan->key());
      if (it == group.plans.end()) continue;
      PlanEntry& entry = it->second;
      const auto& linked = entry.linked;
      if (std::find(linked.begin(), linked.end(), verdict.plan) == linked.end()) continue;
      const PlanKey key = it->first;
      switch (verdict.outcome) {
        case ShadowOutcome::kClean:
          return OnClean(state, group, key, entry, verdict.answered_by_plan);
        case ShadowOutcome::kUndecided:
          return OnUndecided(state, group, key, entry, verdict);
        case ShadowOutcome::kMismatch:
          ++stats_.shadow_mismatches;
          Accuse(state, verdict, entry.contents, cache::ReportKind::kMismatch);
          return DropEverywhere(key, MissReason::kQuarantined, verdict.detail, Blame::kContents);
        case ShadowOutcome::kFault:
          ++stats_.shadow_faults;
          Accuse(state, verdict, entry.contents, cache::ReportKind::kFault);
          return DropEverywhere(key, MissReason::kQuarantined, verdict.detail, Blame::kContents);
      }
    }
}

void TierController::OnClean(ModelState& state, Group& group, const PlanKey& key, PlanEntry& entry,
                             bool answered_by_plan) {
  if (answered_by_plan) {
    ++stats_.samples_clean;
    return;
  }
  ++stats_.shadow_clean;
  if (entry.published || ++entry.clean < options_.shadow_runs) return;
  EndShadow(state, group, entry);
  Publish(state, group, key, entry);
  spdlog::info("model {}: plan {} published for segment {} after {} clean shadow runs", state.model->name(),
               key.ShortHex(), group.id.ShortHex(), entry.clean);
  services_->Report(
      {key, cache::ReportKind::kShadowOk, static_cast<uint32_t>(entry.clean), options_.reporter, "", entry.contents},
      [](Result<cache::ReportReply>) {});
  TurnShadow(state, group);
}

void TierController::OnUndecided(ModelState& state, Group& group, const PlanKey& key, PlanEntry& entry,
                                 const ShadowVerdict& verdict) {
  ++stats_.shadow_undecided;
  if (verdict.answered_by_plan || entry.published) return;
  if (++entry.undecided >= options_.undecided_max)
    return Drop(state, group, key, MissReason::kUndecided,
                std::to_string(entry.undecided) + " shadow runs could not tell; the last: " + verdict.detail,
                Blame::kNone);
  if (!entry.in_shadow) return;
  for (size_t i = 0; i < group.sites.size(); ++i)
    if (entry.linked[i] == verdict.plan) state.model->runtime(group.sites[i]).shadow_wanted.fetch_add(1);
}

}  // namespace kiln
