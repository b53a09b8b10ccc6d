#include "common/native/fault_handler.h"

#include <fcntl.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "common/base/limits.h"

namespace kiln {
namespace {

constexpr size_t kHexDigits = 64;

// Read by the signal handler: plain memory and atomics only. `end` is 0 while an entry is free or being written.
struct CodeRange {
  std::atomic<uintptr_t> begin{0}, end{0};
  char plan[kHexDigits], contents[kHexDigits];
};
std::array<CodeRange, limits::kCodeRangesMax> ranges;
std::mutex ranges_mutex;  // among those who enter and leave

std::atomic<pid_t> faulted{0};  // the thread that handles a fault
char directory_prefix[PATH_MAX];

uintptr_t ProgramCounter(const ucontext_t& context) {
#if defined(__x86_64__)
  return static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<uintptr_t>(context.uc_mcontext.pc);
#else
  return 0;
#endif
}

const CodeRange* RangeOf(uintptr_t address) {
  for (const CodeRange& range : ranges)
    if (address < range.end.load(std::memory_order_acquire) && address >= range.begin.load(std::memory_order_relaxed))
      return &range;
  return nullptr;
}

// Text on standard error; async-signal-safe.
void Say(const char* text, size_t length) {
  while (length > 0) {
    const ssize_t put = write(STDERR_FILENO, text, length);
    if (put <= 0) return;
    text += put;
    length -= static_cast<size_t>(put);
  }
}
void Say(const char* text) {
  Say(text, std::strlen(text));
}

void WriteDown(const CodeRange& range) {
  const size_t prefix = std::strlen(directory_prefix), suffix = std::strlen(kFaultSuffix);
  if (prefix == 0 || prefix + kHexDigits + suffix + 1 > PATH_MAX) return;
  char path[PATH_MAX];
  std::memcpy(path, directory_prefix, prefix);
  std::memcpy(path + prefix, range.plan, kHexDigits);
  std::memcpy(path + prefix + kHexDigits, kFaultSuffix, suffix + 1);
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return Say("kiln: the fault could not be written down\n");
  if (write(file, range.contents, kHexDigits) != static_cast<ssize_t>(kHexDigits))
    Say("kiln: the fault could not be written down\n");
  close(file);
}

void OnFault(int number, siginfo_t* info, void* context) {
  pid_t none = 0;
  if (!faulted.compare_exchange_strong(none, gettid())) {
    if (none == gettid()) _exit(kKernelFaultExit);  // in this very handler
    StopIfFaulted();
  }
  const CodeRange* range = RangeOf(ProgramCounter(*static_cast<const ucontext_t*>(context)));
  if (range == nullptr) {
    Say("kiln: a fault outside generated code, in Kiln or in a plug-in, or damaged memory: signal ");
    const char digits[] = {static_cast<char>('0' + number / 10), static_cast<char>('0' + number % 10), '\n'};
    Say(digits, sizeof(digits));
    signal(number, SIG_DFL);                // the instruction is tried again, and ends the process
    if (info->si_code <= 0) raise(number);  // sent by a process: there is no instruction
    return;
  }
  WriteDown(*range);
  Say("kiln: a fault in the code of plan ");
  Say(range->plan, kHexDigits);
  Say(": the process ends without another answer; the plan is not used again here\n");
  _exit(kKernelFaultExit);
}

}  // namespace

void EnterCodeRange(const void* begin, size_t bytes, const Digest& plan, const Digest& contents) {
  const std::string plan_hex = plan.Hex(), contents_hex = contents.Hex();
  std::lock_guard lock(ranges_mutex);
  for (CodeRange& range : ranges) {
    if (range.end.load(std::memory_order_relaxed) != 0) continue;
    std::memcpy(range.plan, plan_hex.data(), kHexDigits);
    std::memcpy(range.contents, contents_hex.data(), kHexDigits);
    range.begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_relaxed);
    range.end.store(reinterpret_cast<uintptr_t>(begin) + bytes, std::memory_order_release);
    return;
  }
}

void LeaveCodeRange(const void* begin) {
  std::lock_guard lock(ranges_mutex);
  for (CodeRange& range : ranges)
    if (range.end.load(std::memory_order_relaxed) != 0 &&
        range.begin.load(std::memory_order_relaxed) == reinterpret_cast<uintptr_t>(begin))
      return range.end.store(0, std::memory_order_release);
}

Status InstallFaultHandler(const std::string& directory) {
  if (directory.size() + 2 > sizeof(directory_prefix))
    return Fail(ErrorCode::kInvalidArgument, "the path " + directory + " is too long");
  if (!directory.empty()) {
    std::memcpy(directory_prefix, directory.data(), directory.size());
    directory_prefix[directory.size()] = '/';
  }
  struct sigaction action{};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE})
    if (sigaction(number, &action, nullptr) != 0) return Fail(ErrorCode::kIoError, "cannot handle faults");
  return {};
}

void StopIfFaulted() {
  while (faulted.load() != 0) pause();
}

}  // namespace kiln
