// ChildProcess: one long-lived helper process that answers framed jobs over a socket pair.
//
// Compile children run LLVM, validation children run generated code: either may crash, hang or exhaust memory at any
// job. The front process loses that job and nothing else.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace kiln {

// A message between front and child: a kind and its payload. On the wire: u32 length, u8 kind, payload.
struct Frame {
  uint8_t kind = 0;
  std::vector<uint8_t> payload;
};
// The descriptor on which a child finds its end of the pair.
inline constexpr int kChildSocket = 3;

// Blocking frame I/O on a socket; deadline_ms < 0 waits for ever. Fails with DeadlineExceeded, or with Unavailable when
// the other end is closed.
Status WriteFrame(int socket, const Frame& frame, int64_t deadline_ms = -1);
Result<Frame> ReadFrame(int socket, int64_t deadline_ms);

// A sanitizer reserves terabytes of address space for its own tables, so a sanitized child cannot be held to a limit of
// it.
#ifdef KILN_SANITIZED
inline constexpr bool kLimitsAddressSpace = false;
#else
inline constexpr bool kLimitsAddressSpace = true;
#endif

// Limits of a child, set between fork and exec.
struct ChildLimits {
  int64_t address_space_bytes = int64_t{8} << 30;  // 0: none; see kLimitsAddressSpace
  int64_t cpu_seconds = 0;                         // 0: none (the front's deadline rules)
};

// Used from one thread at a time.
class ChildProcess {
 public:
  static Result<std::unique_ptr<ChildProcess>> Spawn(const std::string& binary,
                                                     const std::vector<std::string>& arguments, ChildLimits limits);
  ~ChildProcess();  // kills it if it is alive, and reaps it
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // False once it has ended by itself; it is reaped then. Between jobs that is no job's fault.
  bool Alive();
  // Sends a job and waits for its answer. CompileFailed when the child dies (the message tells the signal or status),
  // DeadlineExceeded when it takes too long, Cancelled when `wanted` says no meanwhile, Malformed when it announces an
  // impossible answer (it is killed in these cases), LimitExceeded when the job is too large to be sent (nothing was).
  // After any other failure the child is gone: spawn another.
  Result<Frame> Exchange(const Frame& job, int64_t deadline_ms, const std::function<bool()>& wanted);
  pid_t pid() const { return pid_; }

 private:
  ChildProcess(pid_t pid, int socket) : pid_(pid), socket_(socket) {}
  std::string Reap(bool expect_exit);  // waits, killing it unless it ends by itself; how it ended
  pid_t pid_;
  int socket_;
};

}  // namespace kiln
