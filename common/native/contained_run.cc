#include "common/native/contained_run.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "common/base/clock.h"

namespace kiln {
namespace {

constexpr int kThrewExit = 1;
constexpr int64_t kPollFirstNs = 50'000, kPollMaxNs = 5'000'000;

[[noreturn]] void RunChild(const std::function<void()>& body, const ContainedLimits& limits) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGXCPU}) signal(number, SIG_DFL);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const auto seconds = static_cast<rlim_t>(limits.cpu_s);
  const rlimit processor{seconds, seconds + 1};
  setrlimit(RLIMIT_CPU, &processor);
  try {
    body();
  } catch (...) {
    _exit(kThrewExit);
  }
  _exit(0);
}

// The child's status; nothing once the deadline has passed or the run is to stop.
bool WaitFor(pid_t child, int64_t deadline_ns, const std::atomic<bool>* stop, int* status) {
  for (int64_t pause_ns = kPollFirstNs;; pause_ns = std::min(2 * pause_ns, kPollMaxNs)) {
    const pid_t ended = waitpid(child, status, WNOHANG);
    if (ended == child) return true;
    if (ended < 0 && errno != EINTR) return false;
    if (SystemClock().NowNs() > deadline_ns || (stop != nullptr && stop->load())) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  }
}

}  // namespace

ContainedEnd RunContained(const std::function<void()>& body, const ContainedLimits& limits) {
  using Kind = ContainedEnd::Kind;
  const pid_t child = fork();
  if (child < 0) return {Kind::kNotRun, std::string("no process for the run: ") + std::strerror(errno)};
  if (child == 0) RunChild(body, limits);
  int status = 0;
  if (!WaitFor(child, SystemClock().NowNs() + limits.wall_s * 1'000'000'000, limits.stop, &status)) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (limits.stop != nullptr && limits.stop->load()) return {Kind::kNotRun, "the run was stopped"};
    return {Kind::kNotRun, "the run was not over after " + std::to_string(limits.wall_s) + " s"};
  }
  if (WIFEXITED(status)) {
    if (WEXITSTATUS(status) == 0) return {Kind::kReturned, ""};
    return {Kind::kNotRun, "out of memory in the run"};
  }
  const int number = WTERMSIG(status);
  if (number == SIGKILL) return {Kind::kNotRun, "the run was killed"};
  if (number == SIGXCPU)
    return {Kind::kFaulted, "no end after " + std::to_string(limits.cpu_s) + " s of processor time"};
  return {Kind::kFaulted, "signal " + std::to_string(number) + " (" + strsignal(number) + ")"};
}

}  // namespace kiln
