// Publishing and claims: what the compile service adds.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "cache-store/records/records.h"
#include "common/base/limits.h"

namespace kiln::store {
namespace {

constexpr size_t kMissingNamedMax = 4;  // ids spelled out in an error message

}  // namespace

Result<SignedRecord> Records::CheckRecord(std::span<const uint8_t> bytes) {
  return options_.verify_signatures ? DecodeAndVerify(bytes, *options_.trusted.Get()) : DecodeUnverified(bytes);
}

Status Records::PutBlob(const Digest& id, const Bytes& blob, const KernelSet& keep) {
  if (catalog_.FindKernel(id) != nullptr) {
    // Known: but only if it can still be read. Otherwise this publish heals it.
    const auto stored = ReadBlob(id);
    if (stored && *stored) {
      Add(Counter::blobs_known);
      return {};
    }
    spdlog::warn("kernel {} cannot be read; what is published now takes its place", id.Hex());
    Add(Counter::entries_damaged);
  } else {
    RETURN_IF_ERROR(EnsureRoom(blob.size(), keep));
  }
  KvBatch batch;
  const std::string size_key = KernelSizeKey(id);
  batch.Put(Space::kBlobs, DigestKey(id), FrameKernelBlob(blob));
  batch.Put(Space::kMeta, size_key, Seal(Space::kMeta, size_key, EncodeU64(blob.size())));
  RETURN_IF_ERROR(Commit(batch));  // the record's synced write comes later in the same log
  catalog_.PutKernel(id, blob.size(), NowNs());
  Add(Counter::blobs_stored);
  return {};
}

Status Records::CheckIndex(const std::vector<KernelBinding>& index, const KernelSet& kernels) {
  const auto trusted = options_.trusted.Get();
  for (const KernelBinding& binding : index) {
    if (!kernels.contains(binding.id))
      return Fail(ErrorCode::kInvalidArgument,
                  "the index names kernel " + binding.id.ShortHex() + ", which is not among those published");
    if (options_.verify_signatures && binding.signer != SignPublicKey{} && !IsBoundBy(binding, *trusted)) {
      Add(Counter::signatures_refused);
      return Fail(ErrorCode::kIntegrityFailure,
                  "the index entry of kernel " + binding.id.ShortHex() + " is forged or of an unknown signer");
    }
  }
  return {};
}

// An entry that nobody signed is reused by nobody; a signed one gives way to one that is checked as well, because who
// publishes it may have found the old one signed by a key that is not trusted any more.
std::vector<KernelBinding> Records::PrepareIndex(const std::vector<KernelBinding>& index, KvBatch& batch) {
  std::vector<KernelBinding> taken;
  for (const KernelBinding& binding : index) {
    if (catalog_.FindKernel(binding.id) == nullptr) continue;  // evicted since it was published
    leases_.Drop(LeaseKey(cache::ClaimKind::kKernel, binding.key), batch);
    const KernelBinding stored = catalog_.FindBinding(binding.key);
    if (stored == binding) continue;
    const bool is_signed = binding.signer != SignPublicKey{}, was_signed = stored.signer != SignPublicKey{};
    if (!stored.id.IsZero() && was_signed && (!is_signed || binding.validation < stored.validation)) continue;
    const std::string key = DigestKey(binding.key);
    batch.Put(Space::kKernelIndex, key, Seal(Space::kKernelIndex, key, EncodeBinding(binding)));
    taken.push_back(binding);
  }
  return taken;
}

Result<cache::PublishBlobsReply> Records::Handle(const cache::PublishBlobsRequest& request, const Caller&) {
  cache::PublishBlobsReply reply;
  for (const Bytes& blob : request.blobs) {
    if (blob.empty() || blob.size() > limits::kKernelBlobBytesMax)
      return Fail(ErrorCode::kLimitExceeded, "a kernel has " + std::to_string(blob.size()) + " bytes; 1 to " +
                                                 std::to_string(limits::kKernelBlobBytesMax) + " are allowed");
    reply.ids.push_back(KernelIdOf(blob));
  }
  const KernelSet kernels(reply.ids.begin(), reply.ids.end());
  RETURN_IF_ERROR(CheckIndex(request.index, kernels));
  for (size_t i = 0; i < request.blobs.size(); ++i) {
    const std::lock_guard lock(mutex_);  // for one at a time, so that lookups go on between them
    RETURN_IF_ERROR(PutBlob(reply.ids[i], request.blobs[i], kernels));
  }
  if (!request.index.empty()) {
    const std::lock_guard lock(mutex_);
    KvBatch batch;
    const std::vector<KernelBinding> taken = PrepareIndex(request.index, batch);
    RETURN_IF_ERROR(Commit(batch));
    for (const KernelBinding& binding : taken) catalog_.PutIndex(binding);
  }
  return reply;
}

Status Records::CheckKernels(const PlanRecord& record) const {
  size_t missing = 0;
  std::string names;
  for (const KernelRef& kernel : record.kernels) {
    const CatalogKernel* stored = catalog_.FindKernel(kernel.id);
    if (stored == nullptr) {
      if (++missing <= kMissingNamedMax) names += " " + kernel.id.Hex();
    } else if (kernel.size != 0 && stored->size != kernel.size) {
      return Fail(ErrorCode::kInvalidArgument, "plan " + record.plan_key.ShortHex() + " says kernel " +
                                                   kernel.id.ShortHex() + " has " + std::to_string(kernel.size) +
                                                   " bytes; it has " + std::to_string(stored->size));
    }
  }
  if (missing == 0) return {};
  return Fail(ErrorCode::kNotFound, "plan " + record.plan_key.ShortHex() + " needs " + std::to_string(missing) +
                                        " kernels that are not stored; publish them first:" + names);
}

// A stored record gives way to one of another code generator that is newer, or to one with better evidence; and when it
// cannot be read.
bool Records::KeepsStored(const Digest& plan_key, const PlanRecord& record) {
  const CatalogPlan* stored = catalog_.FindPlan(plan_key);
  if (stored == nullptr) return false;
  const PlanInfo& info = stored->info;
  const bool newer = info.provenance.codegen_id != record.provenance.codegen_id &&
                     record.provenance.created_wall_ms > info.provenance.created_wall_ms;
  if (newer || record.evidence.validation > info.evidence.validation || IsQuarantined(plan_key)) return false;
  const auto decoded = DecodeStored(plan_key, kv_->Get(Space::kPlans, DigestKey(plan_key)));
  if (decoded) return true;
  spdlog::warn("plan {} cannot be used; what is published now takes its place: {}", plan_key.Hex(),
               ToString(decoded.error()));
  Add(Counter::entries_damaged);
  return false;
}

Status Records::StorePlan(const SignedRecord& decoded, const cache::PublishPlanRequest& request) {
  const PlanRecord& record = decoded.record;
  const CatalogPlan* stored = catalog_.FindPlan(record.plan_key);
  PlanState state = stored == nullptr ? PlanState{.use_wall_ms = options_.clock->WallMs()} : stored->state;
  state.shadow_runs = 0;  // evidence is about one record, not about its key
  PlanInfo info = InfoOf(record, request.record.size());
  for (KernelRef& kernel : info.kernels) kernel.size = catalog_.FindKernel(kernel.id)->size;  // CheckKernels saw it
  KvBatch batch;
  if (stored != nullptr && stored->info.segment != info.segment)
    batch.Delete(Space::kSegmentIndex, SegmentIndexKey(stored->info.segment, record.plan_key));
  const std::string index_key = SegmentIndexKey(info.segment, record.plan_key), state_key = StateKey(record.plan_key);
  batch.Put(Space::kPlans, DigestKey(record.plan_key), request.record);
  batch.Put(Space::kSegmentIndex, index_key, Seal(Space::kSegmentIndex, index_key, EncodeInfo(info)));
  batch.Put(Space::kMeta, state_key, Seal(Space::kMeta, state_key, EncodeState(state)));
  const std::vector<KernelBinding> taken = PrepareIndex(request.kernels, batch);
  batch.Delete(Space::kMeta, WitnessKey(record.plan_key));
  leases_.Drop(LeaseKey(cache::ClaimKind::kPlan, record.plan_key), batch);
  if (IsQuarantined(record.plan_key)) batch.Delete(Space::kMeta, QuarantineKey(record.plan_key));
  log_.Prepare(cache::ChangeKind::kPublish, record.plan_key, info, batch);
  RETURN_IF_ERROR(Commit(batch));
  quarantine_.erase(record.plan_key);
  catalog_.PutPlan(record.plan_key, std::move(info), state, NowNs());
  for (const KernelBinding& binding : taken) catalog_.PutIndex(binding);
  return {};
}

Result<cache::PublishPlanReply> Records::Handle(const cache::PublishPlanRequest& request, const Caller&) {
  const auto refuse = [&](const Error& error) {
    Add(Counter::publish_refused);
    return std::unexpected(error);
  };
  const auto decoded = CheckRecord(request.record);
  if (!decoded) {
    if (decoded.error().code == ErrorCode::kIntegrityFailure) Add(Counter::signatures_refused);
    return refuse(decoded.error());
  }
  const PlanRecord& record = decoded->record;
  KernelSet kernels;
  for (const KernelRef& kernel : record.kernels) kernels.insert(kernel.id);
  if (const Status status = CheckIndex(request.kernels, kernels); !status) return refuse(status.error());

  const std::lock_guard lock(mutex_);
  if (const auto mark = quarantine_.find(record.plan_key);
      mark != quarantine_.end() && mark->second == record.provenance.codegen_id)
    return refuse(
        {ErrorCode::kQuarantined, "plan " + record.plan_key.ShortHex() + " of this code generator is quarantined", {}});
  if (const Status status = CheckKernels(record); !status) return refuse(status.error());
  if (KeepsStored(record.plan_key, record)) {
    Add(Counter::plans_known);
    return cache::PublishPlanReply{record.plan_key, false};
  }
  if (catalog_.FindPlan(record.plan_key) == nullptr)
    if (const Status status = BoundSegment(record.segment, record.target, kernels); !status)
      return refuse(status.error());
  if (const Status status = EnsureRoom(request.record.size(), kernels); !status) return refuse(status.error());
  RETURN_IF_ERROR(StorePlan(*decoded, request));
  Add(Counter::plans_stored);
  return cache::PublishPlanReply{record.plan_key, true};
}

Result<cache::ClaimReply> Records::Handle(const cache::ClaimRequest& request, const Caller&) {
  if (request.holder.empty() || request.holder.size() > limits::kHolderBytesMax)
    return Fail(ErrorCode::kInvalidArgument,
                "a claim needs a holder of 1 to " + std::to_string(limits::kHolderBytesMax) + " characters");
  const std::lock_guard lock(mutex_);
  cache::ClaimReply reply;
  KvBatch batch;
  for (const Digest& key : request.keys) {
    cache::ClaimEntry entry;
    const Digest kernel_id = request.kind == cache::ClaimKind::kKernel ? catalog_.FindBinding(key).id : Digest{};
    const bool present = request.kind == cache::ClaimKind::kKernel
                             ? !kernel_id.IsZero()
                             : catalog_.FindPlan(key) != nullptr && !IsQuarantined(key);
    if (present) {
      entry.state = cache::ClaimState::kPresent;
      entry.kernel_id = kernel_id;
      Add(Counter::claims_present);
    } else {
      const Leases::Outcome outcome =
          leases_.Claim(LeaseKey(request.kind, key), request.holder, request.lease_ms, batch);
      entry.state = outcome.granted ? cache::ClaimState::kGranted : cache::ClaimState::kHeld;
      entry.remaining_ms = outcome.remaining_ms;
      entry.holder = outcome.holder;
      Add(outcome.granted ? Counter::claims_granted : Counter::claims_held);
      if (outcome.taken_over) Add(Counter::claims_taken_over);
    }
    reply.entries.push_back(std::move(entry));
  }
  // A lease that could not be written still holds in this process; losing it at a restart costs one double compile.
  (void)Commit(batch);
  return reply;
}

Result<cache::ReleaseReply> Records::Handle(const cache::ReleaseRequest& request, const Caller&) {
  const std::lock_guard lock(mutex_);
  KvBatch batch;
  for (const Digest& key : request.keys) leases_.Release(LeaseKey(request.kind, key), request.holder, batch);
  (void)Commit(batch);
  return cache::ReleaseReply{};
}

}  // namespace kiln::store
