// Removal: eviction, purge, damage; and the marks on plans: quarantine, pins, reports.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "cache-store/records/records.h"
#include "common/base/limits.h"

namespace kiln::store {
namespace {

constexpr size_t kPlansPerBatch = 256;

}  // namespace

void Records::PrepareRemoval(const Digest& id, const CatalogKernel& kernel, KvBatch& batch) {
  batch.Delete(Space::kBlobs, DigestKey(id));
  batch.Delete(Space::kMeta, KernelSizeKey(id));
  for (const Digest& key : kernel.keys) batch.Delete(Space::kKernelIndex, DigestKey(key));
}

Status Records::RemovePlans(const std::vector<Digest>& plan_keys, cache::ChangeKind kind, const KernelSet& keep) {
  for (size_t begin = 0; begin < plan_keys.size(); begin += kPlansPerBatch) {
    const size_t end = std::min(plan_keys.size(), begin + kPlansPerBatch);
    KvBatch batch;
    std::unordered_map<Digest, uint32_t, DigestHash> released;
    for (size_t i = begin; i < end; ++i) {
      const CatalogPlan* plan = catalog_.FindPlan(plan_keys[i]);
      if (plan == nullptr) continue;
      batch.Delete(Space::kPlans, DigestKey(plan_keys[i]));
      batch.Delete(Space::kSegmentIndex, SegmentIndexKey(plan->info.segment, plan_keys[i]));
      batch.Delete(Space::kMeta, StateKey(plan_keys[i]));
      batch.Delete(Space::kMeta, WitnessKey(plan_keys[i]));
      log_.Prepare(kind, plan_keys[i], plan->info, batch);
      for (const KernelRef& kernel : plan->info.kernels) ++released[kernel.id];
    }
    std::vector<Digest> unneeded;
    for (const auto& [id, count] : released) {
      const CatalogKernel& kernel = *catalog_.FindKernel(id);
      if (kernel.references != count || keep.contains(id)) continue;
      PrepareRemoval(id, kernel, batch);
      unneeded.push_back(id);
    }
    RETURN_IF_ERROR(Commit(batch));
    for (size_t i = begin; i < end; ++i) catalog_.RemovePlan(plan_keys[i], NowNs());
    for (const Digest& id : unneeded) catalog_.RemoveKernel(id);
  }
  return {};
}

Status Records::RemoveOrphans(int64_t older_than_ns, const KernelSet& keep) {
  KvBatch batch;
  std::vector<Digest> orphans;
  for (const auto& [id, kernel] : catalog_.kernels()) {
    if (kernel.references != 0 || kernel.unreferenced_since_ns > older_than_ns || keep.contains(id)) continue;
    PrepareRemoval(id, kernel, batch);
    orphans.push_back(id);
  }
  RETURN_IF_ERROR(Commit(batch));
  for (const Digest& id : orphans) catalog_.RemoveKernel(id);
  Add(Counter::orphans_swept, orphans.size());
  return {};
}

EvictionCandidate Records::CandidateOf(const Digest& plan_key, const CatalogPlan& plan) const {
  return {.plan_key = plan_key,
          .compile_us = plan.info.provenance.compile_us,
          .use = UseNow(plan.state),
          .bytes = BytesOf(plan.info),
          .pinned = plan.state.pinned,
          .worthless = IsQuarantined(plan_key)};
}

Status Records::BoundSegment(const Digest& segment, const std::string& target, const KernelSet& keep) {
  std::vector<EvictionCandidate> candidates;
  for (const Digest& key : catalog_.PlansOf(segment))
    if (const CatalogPlan& plan = *catalog_.FindPlan(key); plan.info.target == target)
      candidates.push_back(CandidateOf(key, plan));
  if (candidates.size() < limits::kPlansPerSegmentMax) return {};
  std::vector<Digest> victims = EvictionOrder(candidates);
  victims.resize(std::min(victims.size(), candidates.size() + 1 - limits::kPlansPerSegmentMax));
  RETURN_IF_ERROR(RemovePlans(victims, cache::ChangeKind::kEvict, keep));
  Add(Counter::plans_evicted, victims.size());
  if (candidates.size() - victims.size() < limits::kPlansPerSegmentMax) return {};
  return Fail(ErrorCode::kResourceExhausted, "segment " + segment.ShortHex() + " has " +
                                                 std::to_string(candidates.size()) +
                                                 " pinned plans for this target, the limit; unpin some");
}

Status Records::EnsureRoom(uint64_t bytes, const KernelSet& keep) {
  const auto level = [&](double part) { return static_cast<uint64_t>(static_cast<double>(options_.bytes_max) * part); };
  if (catalog_.bytes() + bytes <= level(kHighWatermark)) return {};
  RETURN_IF_ERROR(RemoveOrphans(NowNs() - kOrphanGraceMs * 1'000'000, keep));
  std::vector<EvictionCandidate> candidates;
  for (const auto& [key, plan] : catalog_.plans()) {
    candidates.push_back(CandidateOf(key, plan));
  }
  for (const Digest& victim : EvictionOrder(candidates)) {
    if (catalog_.bytes() + bytes <= level(kLowWatermark)) break;
    RETURN_IF_ERROR(RemovePlans({victim}, cache::ChangeKind::kEvict, keep));
    Add(Counter::plans_evicted);
  }
  // What no plan names yet goes last: somebody is about to publish the plan.
  if (catalog_.bytes() + bytes > options_.bytes_max) RETURN_IF_ERROR(RemoveOrphans(INT64_MAX, keep));
  if (catalog_.bytes() + bytes <= options_.bytes_max) return {};
  return Fail(ErrorCode::kResourceExhausted,
              std::to_string(bytes) + " bytes do not fit: " + std::to_string(catalog_.bytes()) + " of " +
                  std::to_string(options_.bytes_max) + " are taken and pinned; raise --max-bytes or unpin plans");
}

void Records::DropDamagedPlan(const Digest& plan_key, const Error& reason) {
  spdlog::warn("plan {} cannot be used and is dropped, so that it is compiled again: {}", plan_key.Hex(),
               ToString(reason));
  Add(Counter::entries_damaged);
  (void)RemovePlans({plan_key}, cache::ChangeKind::kDamaged, {});
}

void Records::DropDamagedKernel(const Digest& kernel_id) {
  spdlog::warn("kernel {} failed its checks and is dropped, with the plans that need it", kernel_id.Hex());
  Add(Counter::entries_damaged);
  std::vector<Digest> plans;
  for (const auto& [key, plan] : catalog_.plans())
    if (std::any_of(plan.info.kernels.begin(), plan.info.kernels.end(),
                    [&](const KernelRef& kernel) { return kernel.id == kernel_id; }))
      plans.push_back(key);
  if (!RemovePlans(plans, cache::ChangeKind::kDamaged, {})) return;
  const CatalogKernel* kernel = catalog_.FindKernel(kernel_id);
  if (kernel == nullptr) return;
  KvBatch batch;
  PrepareRemoval(kernel_id, *kernel, batch);
  if (Commit(batch)) catalog_.RemoveKernel(kernel_id);
}

Result<cache::PurgeReply> Records::Handle(const cache::PurgeRequest& request, const Caller&) {
  const std::lock_guard lock(mutex_);
  std::vector<Digest> chosen;
  for (const auto& [key, plan] : catalog_.plans()) {
    bool matches = false;
    switch (request.kind) {
      case cache::PurgeKind::kPlan:
        matches = key == request.digest;
        break;
      case cache::PurgeKind::kSegment:
        matches = plan.info.segment == request.digest;
        break;
      case cache::PurgeKind::kTarget:
        matches = plan.info.target == request.target;
        break;
      case cache::PurgeKind::kCodegen:
        matches = plan.info.provenance.codegen_id == request.digest;
        break;
    }
    if (matches) chosen.push_back(key);
  }
  if (!request.dry_run) {
    RETURN_IF_ERROR(RemovePlans(chosen, cache::ChangeKind::kPurge, {}));
    Add(Counter::plans_purged, chosen.size());
  }
  return cache::PurgeReply{chosen.size()};
}

Result<cache::PinReply> Records::Handle(const cache::PinRequest& request, const Caller&) {
  const std::lock_guard lock(mutex_);
  CatalogPlan* plan = catalog_.FindPlan(request.plan_key);
  if (plan == nullptr) return Fail(ErrorCode::kNotFound, "plan " + request.plan_key.ShortHex() + " is not stored");
  PlanState state = plan->state;
  state.pinned = request.on;
  KvBatch batch;
  const std::string key = StateKey(request.plan_key);
  batch.Put(Space::kMeta, key, Seal(Space::kMeta, key, EncodeState(state)));
  RETURN_IF_ERROR(Commit(batch));
  plan->state = state;
  return cache::PinReply{};
}

// Marks outlive their plans; of those the first go when there are too many.
void Records::DropOldMarks() {
  KvBatch batch;
  for (auto mark = quarantine_.begin();
       mark != quarantine_.end() && quarantine_.size() > limits::kQuarantineMarksMax;) {
    if (catalog_.FindPlan(mark->first) != nullptr) {
      ++mark;
      continue;
    }
    batch.Delete(Space::kMeta, QuarantineKey(mark->first));
    mark = quarantine_.erase(mark);
  }
  (void)Commit(batch);  // one that stays on the disk is read again at the next start
}

Status Records::SetQuarantine(const Digest& plan_key, bool on) {
  const CatalogPlan* plan = catalog_.FindPlan(plan_key);
  if (plan == nullptr && !IsQuarantined(plan_key))
    return Fail(ErrorCode::kNotFound, "plan " + plan_key.ShortHex() + " is not stored");
  if (IsQuarantined(plan_key) == on) return {};
  KvBatch batch;
  const std::string key = QuarantineKey(plan_key);
  const PlanInfo info = plan == nullptr ? PlanInfo{} : plan->info;
  if (on)
    batch.Put(Space::kMeta, key, Seal(Space::kMeta, key, EncodeDigest(info.provenance.codegen_id)));
  else
    batch.Delete(Space::kMeta, key);
  log_.Prepare(on ? cache::ChangeKind::kQuarantine : cache::ChangeKind::kUnquarantine, plan_key, info, batch);
  RETURN_IF_ERROR(Commit(batch));
  if (on) {
    quarantine_[plan_key] = info.provenance.codegen_id;
    DropOldMarks();
    Add(Counter::plans_quarantined);
    spdlog::warn("plan {} is quarantined", plan_key.ShortHex());
  } else {
    quarantine_.erase(plan_key);
    if (CatalogPlan* shown = catalog_.FindPlan(plan_key)) {
      shown->witnesses.reporters.clear();
      WriteState(plan_key, *shown);
    }
  }
  return {};
}

Result<cache::QuarantineReply> Records::Handle(const cache::QuarantineRequest& request, const Caller&) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(SetQuarantine(request.plan_key, request.on));
  return cache::QuarantineReply{};
}

void Records::PrepareState(const Digest& plan_key, const CatalogPlan& plan, KvBatch& batch) {
  const std::string key = StateKey(plan_key);
  batch.Put(Space::kMeta, key, Seal(Space::kMeta, key, EncodeState(plan.state)));
}

void Records::PrepareWitnesses(const Digest& plan_key, const CatalogPlan& plan, KvBatch& batch) {
  const std::string key = WitnessKey(plan_key);
  batch.Put(Space::kMeta, key, Seal(Space::kMeta, key, EncodeWitnesses(plan.witnesses)));
}

// At once: what a fleet proved must outlive the store's process, and reports are rare.
void Records::WriteState(const Digest& plan_key, CatalogPlan& plan) {
  KvBatch batch;
  PrepareState(plan_key, plan, batch);
  PrepareWitnesses(plan_key, plan, batch);
  plan.state_dirty = plan.witnesses_dirty = !Commit(batch);  // then Tick tries again
}

// Of the record that is stored now. NotFound: it cannot be read, and `plan` is gone.
Result<Digest> Records::ContentsOf(const Digest& plan_key, CatalogPlan& plan) {
  if (plan.contents.IsZero()) {
    const auto bytes = kv_->Get(Space::kPlans, DigestKey(plan_key));
    if (!bytes && bytes.error().code != ErrorCode::kIntegrityFailure) return std::unexpected(bytes.error());
    const auto decoded = DecodeStored(plan_key, bytes);
    if (!decoded) {
      DropDamagedPlan(plan_key, decoded.error());
      return Fail(ErrorCode::kNotFound, "plan " + plan_key.ShortHex() + " is not stored");
    }
    plan.contents = HashBytes(decoded->record.plan);
  }
  return plan.contents;
}

void Records::CountClean(const cache::ReportRequest& request, const Caller& caller, CatalogPlan& plan) {
  uint32_t runs = 0;
  auto& clean_runs = plan.witnesses.clean_runs;
  if (clean_runs.contains(caller.machine) || clean_runs.size() < limits::kMachinesKeptMax) {
    uint32_t& counted = clean_runs[caller.machine];
    runs = std::min(request.runs, limits::kCleanRunsPerMachineMax - std::min(counted, limits::kCleanRunsPerMachineMax));
    counted += runs;
  }
  plan.state.shadow_runs += std::min(runs, limits::kShadowRunsCountedMax - plan.state.shadow_runs);
  WriteState(request.plan_key, plan);
  Add(Counter::reports_ok);
}

Status Records::CountBad(const cache::ReportRequest& request, const Caller& caller, CatalogPlan& plan) {
  Add(Counter::reports_bad);
  spdlog::warn("{} of plan {} reported by '{}' on {}: {}", cache::ReportKindName(request.kind).value_or("report"),
               request.plan_key.ShortHex(), request.reporter, caller.machine, request.detail);
  // The word of others is taken back: who meets the plan now tries it first, where it can do no harm.
  plan.witnesses.clean_runs.clear();
  plan.state.shadow_runs = 0;
  // The reporter's name is its own choice; a machine that restarts with another one is still one witness.
  auto& reporters = plan.witnesses.reporters;
  if (reporters.size() < limits::kMachinesKeptMax) reporters.insert(caller.machine);
  const bool is_authority = (kCompileUp & RoleBit(caller.role)) != 0;
  const bool enough = is_authority || reporters.size() >= kMachinesToQuarantine;
  WriteState(request.plan_key, plan);
  return enough ? SetQuarantine(request.plan_key, true) : Status();
}

Result<cache::ReportReply> Records::Handle(const cache::ReportRequest& request, const Caller& caller) {
  const std::lock_guard lock(mutex_);
  CatalogPlan* plan = catalog_.FindPlan(request.plan_key);
  if (plan == nullptr) return Fail(ErrorCode::kNotFound, "plan " + request.plan_key.ShortHex() + " is not stored");
  bool about_stored = true;  // a report that names no contents is of a worker of the version before
  if (!request.contents.IsZero()) {
    ASSIGN_OR_RETURN(const Digest contents, ContentsOf(request.plan_key, *plan));
    about_stored = contents == request.contents;
  }
  if (!about_stored) {
    Add(Counter::reports_outdated);
  } else if (request.kind == cache::ReportKind::kShadowOk) {
    CountClean(request, caller, *plan);
  } else {
    RETURN_IF_ERROR(CountBad(request, caller, *plan));
  }
  return cache::ReportReply{IsQuarantined(request.plan_key),
                            std::max(plan->info.evidence.shadow_runs, plan->state.shadow_runs)};
}

}  // namespace kiln::store
