#include "cli/fleet/service_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/base/clock.h"

namespace kiln::cli {
namespace {

constexpr int kExitPollUs = 5'000;
constexpr int kRefusedStatus = 2;  // of every service: its flags, or what they name, are wrong

std::string LastLines(const std::string& path) {
  std::ifstream file(path);
  std::string line, last, before;
  while (std::getline(file, line)) {
    before = std::move(last);
    last = line;
  }
  return before + (before.empty() ? "" : " / ") + last;
}

}  // namespace

Result<std::string> OwnDirectory() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Fail(ErrorCode::kIoError, "cannot find the directory of this program: " + error.message());
  return self.parent_path().string();
}

Result<std::unique_ptr<ServiceProcess>> ServiceProcess::Start(const std::string& binary,
                                                              const std::vector<std::string>& arguments,
                                                              const std::string& log_path, int timeout_ms,
                                                              int stop_fd) {
  if (access(binary.c_str(), X_OK) != 0)
    return Fail(ErrorCode::kNotFound, binary + " is missing or not executable; build it with `make build`");
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return Fail(ErrorCode::kIoError, "cannot write " + log_path + ": " + std::strerror(errno));
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    close(log);
    return Fail(ErrorCode::kResourceExhausted, std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), binary);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);  // an interrupt at the terminal reaches the parent, which stops its services in order
    dup2(pipe_ends[1], STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(binary.c_str(), argv.data());
    _exit(127);
  }
  close(log);
  close(pipe_ends[1]);
  if (pid < 0) {
    close(pipe_ends[0]);
    return Fail(ErrorCode::kResourceExhausted, std::string("cannot start ") + binary + ": " + std::strerror(errno));
  }
  std::unique_ptr<ServiceProcess> process(
      new ServiceProcess(pid, pipe_ends[0], std::filesystem::path(binary).filename().string()));
  RETURN_IF_ERROR(process->WaitReady(timeout_ms, log_path, stop_fd));
  return process;
}

Status ServiceProcess::WaitReady(int timeout_ms, const std::string& log_path, int stop_fd) {
  const int64_t deadline = SystemClock().NowNs() + int64_t{timeout_ms} * 1'000'000;
  std::string line;
  for (;;) {
    const int64_t left_ms = (deadline - SystemClock().NowNs()) / 1'000'000;
    pollfd waits[] = {{output_, POLLIN, 0}, {stop_fd, POLLIN, 0}};
    const int ready = left_ms <= 0 ? 0 : poll(waits, 2, static_cast<int>(left_ms));
    if (ready < 0 && errno == EINTR) continue;
    if (waits[1].revents != 0) {
      Stop(0);  // what is not ready has nothing to finish
      return Fail(ErrorCode::kCancelled, name_ + " was stopped before it was ready");
    }
    if (ready <= 0)
      return Fail(ErrorCode::kUnavailable, name_ + " was not ready within " + std::to_string(timeout_ms) +
                                               " ms; its log: " + LastLines(log_path));
    char buffer[512];
    const ssize_t got = read(output_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      // It lets go of its output just before it is gone.
      for (int tries = 0; tries < 200 && Running(); ++tries) usleep(kExitPollUs);
      const bool refused = pid_ < 0 && WIFEXITED(end_) && WEXITSTATUS(end_) == kRefusedStatus;
      return Fail(refused ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable,
                  name_ + " ended at its start; its log: " + LastLines(log_path));
    }
    line.append(buffer, static_cast<size_t>(got));
    if (line.find("ready") != std::string::npos && line.find('\n') != std::string::npos) return {};
  }
}

ServiceProcess::~ServiceProcess() {
  Stop();
  close(output_);
}

bool ServiceProcess::Running() {
  if (pid_ <= 0) return false;
  if (waitpid(pid_, &end_, WNOHANG) == 0) return true;
  pid_ = -1;
  return false;
}

std::string ServiceProcess::EndText() const {
  return WIFSIGNALED(end_) ? "signal " + std::to_string(WTERMSIG(end_))
                           : "exit status " + std::to_string(WEXITSTATUS(end_));
}

void ServiceProcess::Stop(int grace_ms) {
  if (!Running()) return;
  kill(pid_, SIGTERM);
  for (int64_t waited_us = 0; waited_us < int64_t{grace_ms} * 1000; waited_us += kExitPollUs) {
    if (!Running()) return;
    usleep(kExitPollUs);
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace kiln::cli
