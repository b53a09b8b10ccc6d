#include "cli/fleet/scratch_directory.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

Result<std::unique_ptr<ScratchDirectory>> ScratchDirectory::Make(const std::string& prefix) {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  if (error)
    return Fail(ErrorCode::kIoError,
                "there is no temporary directory: " + error.message() + "; set TMPDIR to one that exists");
  std::string path = (temporary / (prefix + "-XXXXXX")).string();
  if (mkdtemp(path.data()) == nullptr)
    return Fail(ErrorCode::kIoError, "cannot make a directory in " + temporary.string() + ": " + std::strerror(errno) +
                                         "; set TMPDIR to one that can be written");
  const int stop_event = eventfd(0, EFD_CLOEXEC);
  if (stop_event < 0) {
    fs::remove_all(path, error);
    return Fail(ErrorCode::kResourceExhausted, std::string("cannot make an event: ") + std::strerror(errno));
  }
  return std::unique_ptr<ScratchDirectory>(new ScratchDirectory(std::move(path), stop_event));
}

ScratchDirectory::ScratchDirectory(std::string path, int stop_event) : path_(std::move(path)), stop_event_(stop_event) {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  watcher_ = std::thread([this] { WatchSignals(); });
}

void ScratchDirectory::WatchSignals() {
  const sigset_t signals = StopSignals();
  const int arrived = signalfd(-1, &signals, SFD_CLOEXEC);
  pollfd waits[] = {{arrived, POLLIN, 0}, {stop_event_, POLLIN, 0}};
  while (poll(waits, 2, -1) < 0 && errno == EINTR) {
  }
  signalfd_siginfo info;
  if (waits[1].revents == 0 && read(arrived, &info, sizeof info) == sizeof info) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    signal(static_cast<int>(info.ssi_signo), SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    kill(getpid(), static_cast<int>(info.ssi_signo));
    pause();
  }
  if (arrived >= 0) close(arrived);
}

ScratchDirectory::~ScratchDirectory() {
  const uint64_t one = 1;
  if (write(stop_event_, &one, sizeof one) == sizeof one)
    watcher_.join();
  else
    watcher_.detach();
  close(stop_event_);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace kiln::cli
