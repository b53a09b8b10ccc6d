#include "compile-service/jobs/tune_kernels.h"

namespace kiln {

uint32_t FastestForm(const std::vector<int64_t>& ns) {
  size_t best = 0;
  for (size_t i = 1; i < ns.size(); ++i)
    if (ns[i] > 0 && (ns[best] <= 0 || ns[i] < ns[best])) best = i;
  if (best == 0 || ns[0] <= 0) return static_cast<uint32_t>(best);
  const double gain = 1 - static_cast<double>(ns[best]) / static_cast<double>(ns[0]);
  return gain < kTunedGainMin ? 0 : static_cast<uint32_t>(best);
}

Result<TimeAnswer> KernelTuner::Time(const TimeJob& job, const Await& await) {
  if (workshop_.time_kernel) return workshop_.time_kernel(job);
  ChildAnswer timing = workshop_.validators.Submit(ToFrame(job), kTunedPriority, control_);
  ASSIGN_OR_RETURN(const Frame frame, await(timing));
  return TimeAnswerFrom(frame);
}

Status KernelTuner::Next(const Await& await) {
  const LowerAnswer::Tunable& tunable = lowered_.tunable[chosen_.size()];
  std::vector<ChildAnswer> compiling;
  for (const LowerAnswer::Tunable::Form& form : tunable.forms)
    compiling.push_back(
        workshop_.compilers.Submit(ToFrame(CompileKernelJob{target_, form.spec}), kTunedPriority, control_));
  TimeJob job{target_, {}, tunable.calls, kTuneBudgetMs};
  for (size_t f = 0; f < tunable.forms.size(); ++f) {
    ASSIGN_OR_RETURN(const Frame frame, await(compiling[f]));
    ASSIGN_OR_RETURN(CompileKernelAnswer answer, CompileKernelAnswerFrom(frame));
    job.forms.push_back({tunable.forms[f].spec, std::move(answer.code)});
  }
  ASSIGN_OR_RETURN(const TimeAnswer timed, Time(job, await));
  if (timed.ns.size() != tunable.forms.size())
    return Fail(ErrorCode::kMalformed, "a validation child timed another number of forms than it was given");
  const uint32_t chosen = FastestForm(timed.ns);
  KernelTuning tuning{0, static_cast<int32_t>(chosen), {}};
  for (size_t f = 0; f < timed.ns.size(); ++f) tuning.choices.push_back({tunable.forms[f].what, timed.ns[f]});
  chosen_.push_back(chosen);
  measured_.emplace_back(tunable.forms[chosen].key, std::move(tuning));
  return {};
}

}  // namespace kiln
