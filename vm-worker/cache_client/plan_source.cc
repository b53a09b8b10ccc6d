#include "vm-worker/cache_client/plan_source.h"

#include <algorithm>

#include "common/base/transient.h"

namespace kiln {
namespace {

// The record says what we asked for, and the plan inside says the same as the record.
Status CheckRecord(const PlanRecord& record, const Plan& plan, const PlanKey& key, const SegmentId& segment,
                   Target host, std::optional<Target> device) {
  if (record.plan_key != key || record.segment != segment || plan.segment != segment || ComputePlanKey(plan) != key)
    return Fail(ErrorCode::kIntegrityFailure, "record " + key.ShortHex() + " holds another plan than its key names");
  if (record.target != plan.target || record.abi != plan.abi || record.weights != static_cast<uint8_t>(plan.weights))
    return Fail(ErrorCode::kIntegrityFailure,
                "record " + key.ShortHex() + " and its plan disagree about target, ABI or weights");
  if (record.abi != KILN_KERNEL_ABI)
    return Fail(ErrorCode::kTargetMismatch, "plan " + key.ShortHex() + " needs kernel ABI " +
                                                std::to_string(record.abi) + ", this worker has " +
                                                std::to_string(KILN_KERNEL_ABI));
  const std::optional<Target> target = TargetFromName(record.target);
  if (!target || !(CanRun(host, *target) || (device && CanRun(*device, *target))))
    return Fail(ErrorCode::kTargetMismatch, "plan " + key.ShortHex() + " is for " + record.target +
                                                ", this host runs at most " + std::string(InfoOf(host).name) +
                                                (device ? ", its device " + std::string(InfoOf(*device).name) : ""));
  return {};
}

}  // namespace

Result<FetchedPlan> PlanSource::Fetch(const PlanKey& key, const SegmentId& segment, int64_t deadline_ms) {
  if (disk_ != nullptr)
    if (const std::optional<Bytes> record = disk_->Record(key)) {
      Result<FetchedPlan> fetched = Open(*record, key, segment, deadline_ms);
      if (fetched.has_value()) {
        fetched->from_disk = true;
        return fetched;
      }
      if (IsTransient(fetched.error().code)) return std::unexpected(fetched.error());  // the record may be good
      disk_->DropRecord(key);
    }
  ASSIGN_OR_RETURN(cache::GetPlanReply reply, store_.CallSync(cache::GetPlanRequest{key}, deadline_ms));
  ASSIGN_OR_RETURN(FetchedPlan fetched, Open(reply.record, key, segment, deadline_ms));
  if (disk_ != nullptr) disk_->PutRecord(key, reply.record);
  return fetched;
}

bool PlanSource::Trusts(const SignPublicKey& signer) const {
  const auto trusted = trusted_.Get();
  return std::find(trusted->begin(), trusted->end(), signer) != trusted->end();
}

Result<FetchedPlan> PlanSource::Open(const Bytes& bytes, const PlanKey& key, const SegmentId& segment,
                                     int64_t deadline_ms) {
  ASSIGN_OR_RETURN(SignedRecord verified, DecodeAndVerify(bytes, *trusted_.Get()));
  ASSIGN_OR_RETURN(Plan plan, DecodePlan(verified.record.plan));
  RETURN_IF_ERROR(CheckRecord(verified.record, plan, key, segment, host_, device_));
  const Digest contents = HashBytes(verified.record.plan);
  if (disk_ != nullptr && disk_->MarkOf(key) == contents)
    return Fail(ErrorCode::kQuarantined, "plan " + key.ShortHex() + " gave a wrong result or faulted here before");
  ASSIGN_OR_RETURN(std::vector<Bytes> kernels, Kernels(plan.kernels, deadline_ms));
  FetchedPlan fetched;
  if (InfoOf(*TargetFromName(plan.target)).is_device()) {
    ASSIGN_OR_RETURN(fetched.images, VerifyImages(plan.kernels, std::move(kernels), *device_));
  } else {
    std::vector<std::span<const uint8_t>> blobs(kernels.begin(), kernels.end());
    ASSIGN_OR_RETURN(std::unique_ptr<CodeMapping> code, CodeMapping::Map(plan.kernels, blobs, host_));
    code->AttributeFaults(key, contents);
    fetched.code = std::move(code);
  }
  fetched.key = key;
  fetched.plan = std::make_shared<const Plan>(std::move(plan));
  fetched.evidence = verified.record.evidence;
  fetched.provenance = verified.record.provenance;
  fetched.contents = contents;
  fetched.signer = verified.signer;
  return fetched;
}

Result<std::vector<Bytes>> PlanSource::Kernels(const std::vector<KernelId>& ids, int64_t deadline_ms) {
  std::vector<Bytes> kernels(ids.size());
  std::vector<Digest> missing;
  std::vector<size_t> places;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (disk_ != nullptr)
      if (std::optional<Bytes> code = disk_->Kernel(ids[i])) {
        kernels[i] = std::move(*code);
        continue;
      }
    missing.push_back(ids[i]);
    places.push_back(i);
  }
  if (missing.empty()) return kernels;
  ASSIGN_OR_RETURN(std::vector<Bytes> fetched, store_.GetBlobsSync(missing, deadline_ms));
  if (fetched.size() != missing.size())
    return Fail(ErrorCode::kMalformed, "the cache store answered with the wrong number of kernels");
  for (size_t i = 0; i < missing.size(); ++i) {
    if (fetched[i].empty()) return Fail(ErrorCode::kNotFound, "the cache store has no kernel " + missing[i].ShortHex());
    if (disk_ != nullptr) disk_->PutKernel(missing[i], fetched[i]);
    kernels[places[i]] = std::move(fetched[i]);
  }
  return kernels;
}

}  // namespace kiln
