// kiln-validate-child: runs new kernels against their specs, and plans that a worker accuses against the ops. Links no
// LLVM; every job is tried in a fork of its own, so that a kernel that faults, hangs or scribbles costs that fork.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/base/caught.h"
#include "common/base/printable.h"
#include "compile-service/jobs/job_codec.h"
#include "compile-service/jobs/replay_files.h"
#include "compile-service/validate/idle_core.h"
#include "compile-service/validate/time_kernels.h"
#include "compile-service/validate/try_plan.h"
#include "compile-service/validate/validate_kernel.h"

namespace kiln {
namespace {

constexpr int64_t kTimeDeadlineMs = 15'000;
constexpr double kIdleShareDefault = 0.8;

Result<Frame> Validate(const Frame& frame) {
  ASSIGN_OR_RETURN(ValidateJob job, ValidateJobFrom(frame));
  ASSIGN_OR_RETURN(ir::KernelSpec spec, ir::DecodeSpec(job.spec));
  RETURN_IF_ERROR(ir::VerifySpec(spec));
  ASSIGN_OR_RETURN(uint32_t trials, ValidateKernel(spec, job.code, job.target, job.trial_dims, job.seed));
  return ToFrame(ValidateAnswer{trials});
}

Result<Frame> TryAccused(const Frame& frame) {
  ASSIGN_OR_RETURN(const TryPlanJob job, TryPlanJobFrom(frame));
  ASSIGN_OR_RETURN(const Segment segment, DecodeSegment(job.segment));
  ASSIGN_OR_RETURN(const Plan plan, DecodePlan(job.plan));
  RETURN_IF_ERROR(VerifyPlan(plan, segment));
  PlanTrial trial{.plan = plan, .segment = segment, .code = job.code};
  for (const std::vector<int64_t>& dims : job.inputs) trial.inputs.emplace_back(std::span(dims));
  trial.parameters = job.parameters;
  trial.seed = job.seed;
  trial.own_seed = job.own_seed;
  trial.budget_ms = job.deadline_ms;
  ASSIGN_OR_RETURN(const ReproduceVerdict verdict, Caught([&] { return TryPlan(trial); }));
  return ToFrame(verdict);
}

Result<Frame> Time(const Frame& frame, double idle_share) {
  ASSIGN_OR_RETURN(const TimeJob job, TimeJobFrom(frame));
  std::vector<KernelForm> forms;
  for (const TimeJob::Form& form : job.forms) {
    ASSIGN_OR_RETURN(ir::KernelSpec spec, ir::DecodeSpec(form.spec));
    RETURN_IF_ERROR(ir::VerifySpec(spec));
    forms.push_back({std::move(spec), form.code});
  }
  std::vector<FormCall> calls;
  for (const TimedCall& call : job.calls) {
    for (const KernelForm& form : forms)
      if (call.dims.size() != static_cast<size_t>(form.spec.dims))
        return Fail(ErrorCode::kMalformed, "a call to be timed has the wrong number of dims");
    calls.push_back({call.dims, call.uses});
  }
  RETURN_IF_ERROR(MoveToIdleCore(idle_share));
  ASSIGN_OR_RETURN(std::vector<int64_t> ns, TimeKernels(forms, job.target, calls, job.budget_ms));
  return ToFrame(TimeAnswer{std::move(ns)});
}

std::string Numbers(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

// What killed its process or ran for ever, for the log.
void LogKernel(const Frame& frame) {
  const Result<ValidateJob> job = ValidateJobFrom(frame);
  if (!job.has_value()) return;
  const Result<ir::KernelSpec> spec = ir::DecodeSpec(job->spec);
  if (spec.has_value()) std::fprintf(stderr, "kernel that failed its trials:\n%s\n", ir::PrintSpec(*spec).c_str());
  for (const std::vector<int64_t>& dims : job->trial_dims)
    std::fprintf(stderr, "  tried with dims %s\n", Numbers(dims).c_str());
}

bool Is(const Frame& frame, JobKind kind) {
  return frame.kind == static_cast<uint8_t>(kind);
}

Result<Frame> Work(const Frame& frame, double idle_share) {
  if (Is(frame, JobKind::kTime)) return Time(frame, idle_share);
  if (Is(frame, JobKind::kTryPlan)) return TryAccused(frame);
  return Validate(frame);
}

// Of a job that ended its process or did not end.
Frame Unfinished(const Frame& frame, const std::string& kernel_did) {
  // The plan runs in a process of its own: this is said of the ops, and of a host without memory.
  if (Is(frame, JobKind::kTryPlan))
    return ToFrame(ReproduceVerdict{ReproduceOutcome::kUndecided, "the trial " + kernel_did});
  LogKernel(frame);
  return FailedFrame({ErrorCode::kCompileFailed, "the kernel " + kernel_did, {}});
}

// A frame that is none is answered at once.
int64_t DeadlineMsOf(const Frame& frame) {
  if (Is(frame, JobKind::kTime)) return kTimeDeadlineMs;
  if (Is(frame, JobKind::kTryPlan)) {
    const Result<TryPlanJob> job = TryPlanJobFrom(frame);
    return job.has_value() ? job->deadline_ms : 1'000;
  }
  const Result<ValidateJob> job = ValidateJobFrom(frame);
  return job.has_value() ? job->deadline_ms : 1'000;
}

// Runs the job in a fork and brings its answer back over a socket pair.
Frame Forked(const Frame& frame, double idle_share) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return FailedFrame({ErrorCode::kResourceExhausted, "cannot make a socket pair", {}});
  const pid_t pid = fork();
  if (pid == 0) {
    close(pair[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // the front may end its child while the kernel runs for ever
    const Result<Frame> answer = Work(frame, idle_share);
    (void)WriteFrame(pair[1], answer.has_value() ? *answer : FailedFrame(answer.error())).has_value();
    _exit(0);
  }
  close(pair[1]);
  Result<Frame> answer = pid < 0 ? Result<Frame>(Fail(ErrorCode::kResourceExhausted, "cannot fork"))
                                 : ReadFrame(pair[0], DeadlineMsOf(frame));
  close(pair[0]);
  if (pid < 0) return FailedFrame(answer.error());
  if (!answer.has_value()) kill(pid, SIGKILL);
  int status = 0;
  const int64_t before_ns = ProcessorNs();
  waitpid(pid, &status, 0);
  const int64_t job_ns = ProcessorNs() - before_ns;
  if (answer.has_value()) return *answer;
  if (answer.error().code == ErrorCode::kDeadlineExceeded) {
    if (Is(frame, JobKind::kTryPlan) && HostWasBusy(DeadlineMsOf(frame) * 1'000'000, job_ns))
      return FailedFrame({ErrorCode::kBusy, "the host is too busy to try the plan: it was not over in time", {}});
    return Unfinished(frame, "did not finish in time");
  }
  const std::string end = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "an early exit";
  return Unfinished(frame, "ended its process: " + end);
}

int ReplayPlan(const Frame& job) {
  const Result<ReproduceVerdict> verdict = ReproduceVerdictFrom(Forked(job, 0));
  if (!verdict.has_value()) {
    std::fprintf(stderr, "%s\n", Printable(ToString(verdict.error())).c_str());
    return ErrorExitCode(verdict.error().code);
  }
  std::printf("the plan: %s; %s\n", std::string(ReproduceOutcomeText(verdict->outcome)).c_str(),
              Printable(verdict->detail).c_str());
  return verdict->IsReproduced() ? ErrorExitCode(ErrorCode::kQuarantined) : 0;
}

// Tries the kernel of a replay file again, and says what came of it.
int Replay(const char* path) {
  const Result<Frame> job = ReadReplay(path);
  if (job.has_value() && Is(*job, JobKind::kTryPlan)) return ReplayPlan(*job);
  const Result<ValidateAnswer> answer =
      job.has_value() ? ValidateAnswerFrom(Forked(*job, 0)) : Result<ValidateAnswer>(std::unexpected(job.error()));
  if (answer.has_value()) {
    std::printf("the kernel passed %u trials\n", answer->trials);
    return 0;
  }
  std::fprintf(stderr, "%s\n", Printable(ToString(answer.error())).c_str());
  return ErrorExitCode(answer.error().code);
}

// The argument is the share of time a core must be idle for to time kernels on it.
int Main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--replay") == 0) return Replay(argv[2]);
  const double idle_share = argc > 1 ? std::atof(argv[1]) : kIdleShareDefault;
  for (;;) {
    Result<Frame> job = ReadFrame(kChildSocket, -1);
    if (!job.has_value()) return 0;
    if (!WriteFrame(kChildSocket, Forked(*job, idle_share)).has_value()) return 0;
  }
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  return kiln::Main(argc, argv);
}
