#include "compile-service/jobs/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "common/base/clock.h"
#include "common/base/limits.h"

namespace kiln {
namespace {

constexpr int kExitGraceMs = 2000;
constexpr int64_t kWantedPollMs = 50;

std::string SystemError(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

// Whether the socket is ready for `events` before the deadline (-1: whenever that is).
Status WaitFor(int socket, short events, int64_t deadline_ns) {
  for (;;) {
    const int64_t left_ms = deadline_ns < 0 ? -1 : (deadline_ns - SystemClock().NowNs()) / 1'000'000;
    pollfd wait{socket, events, 0};
    const int ready =
        deadline_ns >= 0 && left_ms < 0 ? 0 : poll(&wait, 1, deadline_ns < 0 ? -1 : static_cast<int>(left_ms) + 1);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Fail(ErrorCode::kDeadlineExceeded, "no answer in time");
    return {};
  }
}

Status WriteAll(int socket, const uint8_t* data, size_t size, int64_t deadline_ns) {
  while (size > 0) {
    RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline_ns));
    const ssize_t sent = send(socket, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent <= 0) return Fail(ErrorCode::kUnavailable, SystemError("cannot write to the other end"));
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return {};
}

Status ReadAll(int socket, uint8_t* data, size_t size, int64_t deadline_ns) {
  while (size > 0) {
    RETURN_IF_ERROR(WaitFor(socket, POLLIN, deadline_ns));
    const ssize_t received = recv(socket, data, size, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return Fail(ErrorCode::kUnavailable, "the other end is closed");
    data += received;
    size -= static_cast<size_t>(received);
  }
  return {};
}

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void ExecChild(const char* binary, char* const* arguments, int socket, const ChildLimits& limits) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (kLimitsAddressSpace && limits.address_space_bytes > 0) {
    const rlimit limit{static_cast<rlim_t>(limits.address_space_bytes),
                       static_cast<rlim_t>(limits.address_space_bytes)};
    setrlimit(RLIMIT_AS, &limit);
  }
  if (limits.cpu_seconds > 0) {
    const rlimit limit{static_cast<rlim_t>(limits.cpu_seconds), static_cast<rlim_t>(limits.cpu_seconds)};
    setrlimit(RLIMIT_CPU, &limit);
  }
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (socket == kChildSocket) {
    fcntl(socket, F_SETFD, 0);
  } else {
    dup2(socket, kChildSocket);
  }
  execv(binary, arguments);
  _exit(127);
}

}  // namespace

Status WriteFrame(int socket, const Frame& frame, int64_t deadline_ms) {
  if (frame.payload.size() > limits::kChildFrameBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "frame of " + std::to_string(frame.payload.size()) +
                                               " bytes; the limit is " + std::to_string(limits::kChildFrameBytesMax));
  const auto size = static_cast<uint32_t>(frame.payload.size());
  const uint8_t head[5] = {static_cast<uint8_t>(size), static_cast<uint8_t>(size >> 8),
                           static_cast<uint8_t>(size >> 16), static_cast<uint8_t>(size >> 24), frame.kind};
  const int64_t deadline_ns = deadline_ms < 0 ? -1 : SystemClock().NowNs() + deadline_ms * 1'000'000;
  RETURN_IF_ERROR(WriteAll(socket, head, sizeof head, deadline_ns));
  return WriteAll(socket, frame.payload.data(), frame.payload.size(), deadline_ns);
}

Result<Frame> ReadFrame(int socket, int64_t deadline_ms) {
  const int64_t deadline_ns = deadline_ms < 0 ? -1 : SystemClock().NowNs() + deadline_ms * 1'000'000;
  uint8_t head[5];
  RETURN_IF_ERROR(ReadAll(socket, head, sizeof head, deadline_ns));
  const size_t size = size_t{head[0]} | size_t{head[1]} << 8 | size_t{head[2]} << 16 | size_t{head[3]} << 24;
  if (size > limits::kChildFrameBytesMax)
    return Fail(ErrorCode::kMalformed, "frame announces " + std::to_string(size) + " bytes");
  Frame frame;
  frame.kind = head[4];
  frame.payload.resize(size);
  RETURN_IF_ERROR(ReadAll(socket, frame.payload.data(), size, deadline_ns));
  return frame;
}

Result<std::unique_ptr<ChildProcess>> ChildProcess::Spawn(const std::string& binary,
                                                          const std::vector<std::string>& arguments,
                                                          ChildLimits limits) {
  if (access(binary.c_str(), X_OK) != 0)
    return Fail(ErrorCode::kNotFound,
                "helper binary " + binary + " is missing or not executable; it belongs beside kiln-compile");
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return Fail(ErrorCode::kResourceExhausted, SystemError("cannot make a socket pair"));
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), binary);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) ExecChild(binary.c_str(), argv.data(), pair[1], limits);
  close(pair[1]);
  if (pid < 0) {
    close(pair[0]);
    return Fail(ErrorCode::kResourceExhausted, SystemError("cannot start a child process"));
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, pair[0]));
}

ChildProcess::~ChildProcess() {
  Reap(false);
  close(socket_);
}

std::string ChildProcess::Reap(bool expect_exit) {
  if (pid_ <= 0) return "is gone";
  int status = 0;
  bool ended = false;
  // A child that closed its socket is ending by itself; wait a moment so that its own status is seen.
  for (int waited = 0; expect_exit && waited < kExitGraceMs && !ended; ++waited) {
    ended = waitpid(pid_, &status, WNOHANG) == pid_;
    if (!ended) usleep(1000);
  }
  if (!ended) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) return std::string("was ended by signal: ") + strsignal(WTERMSIG(status));
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

bool ChildProcess::Alive() {
  if (pid_ <= 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == 0) return true;
  pid_ = -1;
  return false;
}

Result<Frame> ChildProcess::Exchange(const Frame& job, int64_t deadline_ms, const std::function<bool()>& wanted) {
  if (pid_ <= 0) return Fail(ErrorCode::kUnavailable, "the child is gone");
  const int64_t end_ns = SystemClock().NowNs() + deadline_ms * 1'000'000;
  const auto left_ms = [end_ns] { return std::max<int64_t>(0, (end_ns - SystemClock().NowNs()) / 1'000'000); };
  Status ready = WriteFrame(socket_, job, deadline_ms);
  if (!ready.has_value() && ready.error().code == ErrorCode::kLimitExceeded) return std::unexpected(ready.error());
  // The answer's first byte, and in between whether anybody still waits for it.
  while (ready.has_value()) {
    const int64_t slice_ms = std::min(left_ms(), kWantedPollMs);
    ready = WaitFor(socket_, POLLIN, SystemClock().NowNs() + slice_ms * 1'000'000);
    if (ready.has_value()) break;
    if (!wanted()) {
      Reap(false);
      return Fail(ErrorCode::kCancelled, "the job was ended: nobody waits for it");
    }
    if (left_ms() > 0) ready = {};
  }
  Result<Frame> answer =
      ready.has_value() ? ReadFrame(socket_, left_ms()) : Result<Frame>(std::unexpected(ready.error()));
  if (answer.has_value()) return answer;
  if (answer.error().code == ErrorCode::kDeadlineExceeded) {
    Reap(false);
    return Fail(ErrorCode::kDeadlineExceeded,
                "the job took longer than " + std::to_string(deadline_ms) + " ms and was ended");
  }
  if (answer.error().code == ErrorCode::kMalformed) {
    Reap(false);
    return Fail(ErrorCode::kMalformed, "the child's answer is none: " + answer.error().message);
  }
  return Fail(ErrorCode::kCompileFailed, "the child " + Reap(true));
}

}  // namespace kiln
