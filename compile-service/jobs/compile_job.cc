#include "compile-service/jobs/compile_job.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "common/artifact/kernel_abi.h"
#include "common/artifact/plan.h"
#include "common/artifact/record.h"
#include "common/segment/segment.h"
#include "compile-service/jobs/job_codec.h"

namespace kiln {
namespace {

constexpr int64_t kStoreDeadlineMs = 5'000;
constexpr uint32_t kLeaseMs = 30'000;
constexpr int64_t kLeasePollMs = 20;
constexpr int64_t kClaimWaitMs = 2 * int64_t{kLeaseMs};  // a holder that died, and one that took over from it

// What the stages hand on.
struct JobState {
  const CompileRequest& request;
  CompileWorkshop& workshop;
  Target target{};
  Segment segment;
  LowerAnswer lowered;
  Plan plan;
  PlanKey plan_key;
  std::vector<KernelBinding> kernels;  // with zero ids until known
  std::vector<Bytes> fresh_code;       // per kernel; empty unless compiled here
  uint32_t compiled = 0, reused = 0;
};

Status Lower(JobState& job) {
  const std::optional<Target> target = TargetFromName(job.request.target);
  if (!target) return Fail(ErrorCode::kInvalidArgument, "unknown target \"" + job.request.target + "\"");
  job.target = *target;
  ASSIGN_OR_RETURN(job.segment, DecodeSegment(job.request.segment));
  Message message = EncodeCompileRequest(job.request);
  ASSIGN_OR_RETURN(Frame answer,
                   job.workshop.compilers.Submit(LowerFrame(std::move(message.payload)), job.request.priority).get());
  ASSIGN_OR_RETURN(job.lowered, LowerAnswerFrom(answer));
  ASSIGN_OR_RETURN(job.plan, DecodePlan(job.lowered.plan));
  job.plan_key = ComputePlanKey(job.plan);
  job.kernels.resize(job.lowered.kernels.size());
  job.fresh_code.resize(job.lowered.kernels.size());
  return {};
}

// Whether the store holds a record of this plan that we would accept ourselves.
Result<bool> IsPublished(JobState& job) {
  const auto reply = job.workshop.store.CallSync(cache::GetPlanRequest{job.plan_key}, kStoreDeadlineMs);
  if (!reply.has_value()) {
    if (reply.error().code == ErrorCode::kNotFound) return false;
    return std::unexpected(reply.error());
  }
  return !reply->record.empty() && DecodeAndVerify(reply->record, *job.workshop.trusted.Get()).has_value();
}

// Takes the lease on the plan; false when somebody else published it meanwhile.
Result<bool> ClaimPlan(JobState& job) {
  const cache::ClaimRequest claim{cache::ClaimKind::kPlan, {job.plan_key}, kLeaseMs, job.workshop.holder};
  const int64_t give_up_ns = job.workshop.clock.NowNs() + kClaimWaitMs * 1'000'000;
  while (job.workshop.clock.NowNs() < give_up_ns) {
    ASSIGN_OR_RETURN(cache::ClaimReply reply, job.workshop.store.CallSync(claim, kStoreDeadlineMs));
    if (reply.entries.size() != 1)
      return Fail(ErrorCode::kMalformed, "the cache store answered a claim with the wrong number of entries");
    switch (reply.entries[0].state) {
      case cache::ClaimState::kGranted:
        return true;
      case cache::ClaimState::kPresent:
        return false;
      case cache::ClaimState::kHeld:
        break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kLeasePollMs));
  }
  return Fail(ErrorCode::kBusy, "other compile services hold the lease on plan " + job.plan_key.ShortHex() +
                                    " for more than " + std::to_string(kClaimWaitMs) + " ms; retry later");
}

// After a failure: the next replica need not wait for the lease to expire. Publishing ends the lease by itself.
void ReleasePlan(JobState& job) {
  const cache::ReleaseRequest release{cache::ClaimKind::kPlan, {job.plan_key}, job.workshop.holder};
  if (const auto reply = job.workshop.store.CallSync(release, kStoreDeadlineMs); !reply.has_value())
    spdlog::warn("the lease on plan {} stays for {} ms: {}", job.plan_key.ShortHex(), kLeaseMs,
                 ToString(reply.error()));
}

// Fills in what the store has and a trusted signer bound to the key that we asked for. What anybody else says about a
// key is no better than nothing: the bytes may compute something else, or nobody may ever have run them.
Status FindKnownKernels(JobState& job) {
  cache::LookupKernelsRequest lookup;
  for (const LowerAnswer::Kernel& kernel : job.lowered.kernels) lookup.keys.push_back(kernel.key);
  if (lookup.keys.empty()) return {};
  ASSIGN_OR_RETURN(cache::LookupKernelsReply reply, job.workshop.store.CallSync(lookup, kStoreDeadlineMs));
  if (reply.kernels.size() != lookup.keys.size())
    return Fail(ErrorCode::kMalformed, "the cache store answered a kernel lookup with the wrong number of ids");
  const auto trusted = job.workshop.trusted.Get();
  for (size_t i = 0; i < job.kernels.size(); ++i) {
    KernelBinding& known = reply.kernels[i];
    if (known.id.IsZero()) continue;
    known.key = lookup.keys[i];
    if (!IsBoundBy(known, *trusted)) {
      spdlog::info("kernel {} is compiled again: no trusted signer vouches for the stored one", known.key.ShortHex());
      continue;
    }
    job.kernels[i] = known;
    ++job.reused;
  }
  return {};
}

using Pending = std::vector<std::pair<size_t, std::future<Result<Frame>>>>;  // by kernel

// Compiles what is missing on all children. Each kernel goes to its trials as soon as it is there.
Result<Pending> CompileMissing(JobState& job) {
  const uint32_t priority = job.request.priority;
  Pending compiling, trying;
  for (size_t i = 0; i < job.kernels.size(); ++i)
    if (job.kernels[i].id.IsZero())
      compiling.emplace_back(i, job.workshop.compilers.Submit(
                                    ToFrame(CompileKernelJob{job.target, job.lowered.kernels[i].spec}), priority));
  for (auto& [i, future] : compiling) {
    ASSIGN_OR_RETURN(Frame frame, future.get());
    ASSIGN_OR_RETURN(CompileKernelAnswer answer, CompileKernelAnswerFrom(frame));
    job.fresh_code[i] = std::move(answer.code);
    job.kernels[i].id = KernelIdOf(job.fresh_code[i]);
    ++job.compiled;
    const LowerAnswer::Kernel& kernel = job.lowered.kernels[i];
    const ValidateJob trials{job.target, kernel.spec, job.fresh_code[i], kernel.trial_dims,
                             DigestHash{}(job.kernels[i].id)};
    trying.emplace_back(i, job.workshop.validators.Submit(ToFrame(trials), priority));
  }
  return trying;
}

// Binds what passed.
Status AwaitTrials(JobState& job, Pending trying) {
  for (auto& [i, future] : trying) {
    ASSIGN_OR_RETURN(Frame frame, future.get());
    const Result<ValidateAnswer> answer = ValidateAnswerFrom(frame);
    if (!answer.has_value()) return FailIn("kernel " + job.kernels[i].id.ShortHex(), answer.error());
    const ValidationKind validation = answer->trials == 0 ? ValidationKind::kNotExecuted : ValidationKind::kExecuted;
    job.kernels[i] = BindKernel(job.lowered.kernels[i].key, job.kernels[i].id, validation, job.workshop.signing_key);
  }
  return {};
}

Status Publish(JobState& job, int64_t started_ns) {
  cache::CacheClient& store = job.workshop.store;
  std::vector<Bytes> blobs;
  for (Bytes& code : job.fresh_code)
    if (!code.empty()) blobs.push_back(code);
  if (!blobs.empty()) {
    ASSIGN_OR_RETURN([[maybe_unused]] std::vector<Digest> stored,
                     store.PublishBlobsSync(std::move(blobs), kStoreDeadlineMs));
  }
  job.plan.kernels.clear();
  for (const KernelBinding& kernel : job.kernels) job.plan.kernels.push_back(kernel.id);
  RETURN_IF_ERROR(VerifyPlan(job.plan, job.segment));

  PlanRecord record;
  record.plan_key = job.plan_key;
  record.segment = job.segment.id;
  record.target = job.request.target;
  record.abi = job.plan.abi;
  record.numeric_mode = static_cast<uint8_t>(job.plan.numeric_mode);
  record.guard = EncodeGuard(job.plan.guard, job.plan.symbols);
  record.plan = EncodePlan(job.plan);
  cache::PublishPlanRequest publish{{}, job.kernels};
  record.evidence.validation = ValidationKind::kExecuted;
  for (size_t i = 0; i < job.kernels.size(); ++i) {
    record.kernels.push_back({job.kernels[i].id, job.fresh_code[i].size()});
    record.evidence.validation = std::min(record.evidence.validation, job.kernels[i].validation);
  }
  record.provenance = {job.lowered.codegen_id, static_cast<uint64_t>((job.workshop.clock.NowNs() - started_ns) / 1000),
                       job.workshop.clock.WallMs(), static_cast<uint8_t>(job.request.tier)};
  publish.record = EncodeAndSign(record, job.workshop.signing_key);
  ASSIGN_OR_RETURN([[maybe_unused]] cache::PublishPlanReply reply, store.CallSync(publish, kStoreDeadlineMs));
  return {};
}

// Wall time since the last call, microseconds.
class StageTimer {
 public:
  explicit StageTimer(const Clock& clock) : clock_(clock), last_ns_(clock.NowNs()) {}
  uint64_t LapUs() {
    const int64_t now = clock_.NowNs();
    return static_cast<uint64_t>((now - std::exchange(last_ns_, now)) / 1000);
  }

 private:
  const Clock& clock_;
  int64_t last_ns_;
};

// What follows the claim.
Status Bake(JobState& job, int64_t started_ns, StageTimer& timer, CompileOutcome& outcome) {
  RETURN_IF_ERROR(FindKnownKernels(job));
  ASSIGN_OR_RETURN(Pending trying, CompileMissing(job));
  outcome.kernels_us = timer.LapUs();
  RETURN_IF_ERROR(AwaitTrials(job, std::move(trying)));
  outcome.validate_us = timer.LapUs();
  RETURN_IF_ERROR(Publish(job, started_ns));
  outcome.publish_us = timer.LapUs();
  return {};
}

}  // namespace

Result<CompileOutcome> RunCompileJob(const CompileRequest& request, CompileWorkshop& workshop) {
  const int64_t started_ns = workshop.clock.NowNs();
  JobState job{request, workshop, {}, {}, {}, {}, {}, {}, {}, 0, 0};
  CompileOutcome outcome;
  StageTimer timer(workshop.clock);
  RETURN_IF_ERROR(Lower(job));
  outcome.lower_us = timer.LapUs();
  outcome.reply.plan_key = job.plan_key;
  outcome.reply.kernels = static_cast<uint32_t>(job.kernels.size());
  outcome.reply.generated_nodes = job.lowered.generated_nodes;
  outcome.reply.reference_nodes = job.lowered.reference_nodes;
  ASSIGN_OR_RETURN(outcome.reply.already_there, IsPublished(job));
  if (!outcome.reply.already_there) {
    ASSIGN_OR_RETURN(bool claimed, ClaimPlan(job));
    outcome.reply.already_there = !claimed;
  }
  if (!outcome.reply.already_there) {
    if (const Status baked = Bake(job, started_ns, timer, outcome); !baked.has_value()) {
      ReleasePlan(job);
      return std::unexpected(baked.error());
    }
  }
  outcome.reply.kernels_compiled = job.compiled;
  outcome.kernels_reused = job.reused;
  outcome.reply.compile_us = static_cast<uint64_t>((workshop.clock.NowNs() - started_ns) / 1000);
  return outcome;
}

}  // namespace kiln
