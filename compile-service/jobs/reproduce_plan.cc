#include "compile-service/jobs/reproduce_plan.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/artifact/kernel_abi.h"
#include "common/artifact/record.h"
#include "common/base/transient.h"

namespace kiln {
namespace {

constexpr int64_t kStoreDeadlineMs = 5'000;
constexpr int64_t kAwaitPollMs = 50;
constexpr uint32_t kPriority = UINT32_MAX;  // before new plans: others may use this one

int64_t StoreMs(const CompileWorkshop& workshop, const JobControl& control) {
  return std::clamp<int64_t>((control.deadline_ns() - workshop.clock.NowNs()) / 1'000'000, 1, kStoreDeadlineMs);
}

std::unexpected<Error> OfStore(const Error& error) {
  return Fail(ErrorCode::kUnavailable, "the cache store: " + ToString(error));
}

ReproduceReply Gone(const std::string& detail, bool quarantined) {
  return {{ReproduceOutcome::kGone, detail}, quarantined};
}

// What there is to run; a reply where there is nothing.
struct Accused {
  std::optional<ReproduceReply> answered;
  TryPlanJob job;
};

Status CheckRecord(const PlanRecord& record, const Plan& plan, const ReproduceRequest& request,
                   const Segment& segment) {
  if (record.plan_key != request.plan_key || ComputePlanKey(plan) != request.plan_key)
    return Fail(ErrorCode::kIntegrityFailure, "the record holds another plan than its key names");
  if (plan.abi != KILN_KERNEL_ABI)
    return Fail(ErrorCode::kTargetMismatch, "the plan needs kernel ABI " + std::to_string(plan.abi) +
                                                ", this compile service has " + std::to_string(KILN_KERNEL_ABI));
  return VerifyPlan(plan, segment);
}

Result<Accused> Fetch(const ReproduceRequest& request, const CompileWorkshop& workshop, const JobControl& control) {
  ASSIGN_OR_RETURN(const Segment segment, DecodeSegment(request.segment));
  Accused accused;
  const auto stored = workshop.store.CallSync(cache::GetPlanRequest{request.plan_key}, StoreMs(workshop, control));
  if (!stored.has_value()) {
    const ErrorCode code = stored.error().code;
    if (code != ErrorCode::kNotFound && code != ErrorCode::kQuarantined) return OfStore(stored.error());
    accused.answered = Gone(stored.error().message, code == ErrorCode::kQuarantined);
    return accused;
  }
  ASSIGN_OR_RETURN(const SignedRecord verified, DecodeAndVerify(stored->record, *workshop.trusted.Get()));
  const PlanRecord& record = verified.record;
  if (HashBytes(record.plan) != request.contents) {
    accused.answered = Gone("the store has another plan under this key now", false);
    return accused;
  }
  ASSIGN_OR_RETURN(const Plan plan, DecodePlan(record.plan));
  RETURN_IF_ERROR(CheckRecord(record, plan, request, segment));
  auto code = workshop.store.GetBlobsSync(plan.kernels, StoreMs(workshop, control));
  if (!code.has_value()) return OfStore(code.error());
  if (std::ranges::any_of(*code, [](const Bytes& kernel) { return kernel.empty(); })) {
    accused.answered = Gone("the store does not have all kernels of the plan any more", false);
    return accused;
  }
  TryPlanJob& job = accused.job;
  job.segment = request.segment;
  job.plan = record.plan;
  job.code = std::move(*code);
  for (const Dims& dims : request.inputs) job.inputs.emplace_back(dims.begin(), dims.end());
  job.parameters = request.parameters;
  job.seed = request.seed;
  job.own_seed = workshop.random();
  job.deadline_ms = static_cast<uint32_t>(workshop.validators.job_deadline_ms() * 9 / 10);
  return accused;
}

}  // namespace

Result<ReproduceReply> ReproducePlan(const ReproduceRequest& request, const CompileWorkshop& workshop,
                                     const std::shared_ptr<const JobControl>& control) {
  ASSIGN_OR_RETURN(const Accused accused, Fetch(request, workshop, *control));
  if (accused.answered) return *accused.answered;
  const Frame job = ToFrame(accused.job);
  ChildAnswer pending = workshop.validators.Submit(job, kPriority, control);
  while (!pending.IsThereWithin(kAwaitPollMs)) RETURN_IF_ERROR(control->Check(workshop.clock.NowNs()));
  ASSIGN_OR_RETURN(const Frame frame, pending.get());
  ReproduceReply reply;
  ASSIGN_OR_RETURN(reply.verdict, ReproduceVerdictFrom(frame));
  if (!reply.verdict.IsReproduced()) return reply;
  workshop.validators.Keep(job, {ErrorCode::kQuarantined, reply.verdict.detail, {}});
  // With the role of a compile service this word is enough, and only against these very contents.
  const cache::ReportKind kind =
      reply.verdict.outcome == ReproduceOutcome::kFault ? cache::ReportKind::kFault : cache::ReportKind::kMismatch;
  const cache::ReportRequest report{request.plan_key, kind, 1, workshop.holder, "reproduced: " + reply.verdict.detail,
                                    request.contents};
  const auto told = workshop.store.CallSync(report, kStoreDeadlineMs);
  if (!told.has_value() && told.error().code != ErrorCode::kNotFound) return OfStore(told.error());
  reply.quarantined = told.has_value() && told->quarantined;
  return reply;
}

}  // namespace kiln
