// `kiln up`: the embedded default, kept running until it is stopped.
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "cli/commands.h"
#include "cli/fleet/embedded_fleet.h"
#include "cli/fleet/restarts.h"
#include "cli/say.h"
#include "common/base/clock.h"

namespace kiln::cli {
namespace {

constexpr int kLookEveryS = 1;  // at the services: whether all still run

struct UpFlags {
  std::string directory = "kiln-fleet";
  std::string store = "rocksdb";
  int workers = 1;
  int threads = 1;
  std::vector<std::string> models;
};

// One of the services: how it is looked at and started again.
struct Watched {
  std::string name;
  std::function<ServiceProcess&()> process;
  std::function<Status()> start;
  bool needed = false;  // without it the others are stopped
  Restarts restarts;
  std::optional<int64_t> due_ns = {};  // ended; started again then
  bool given_up = false;
};

class Watch {
 public:
  explicit Watch(EmbeddedFleet& fleet) : directory_(fleet.directory()) {
    Add({"kiln-cache", [&fleet]() -> ServiceProcess& { return fleet.cache(); },
         [&fleet] { return fleet.StartCache(); }});
    Add({"kiln-compile", [&fleet]() -> ServiceProcess& { return fleet.compile(); },
         [&fleet] { return fleet.StartCompile(); }});
    for (int i = 0; i < fleet.workers(); ++i)
      Add({"kiln-worker (worker" + std::to_string(i) + ")",
           [&fleet, i]() -> ServiceProcess& { return fleet.worker(i); }, [&fleet, i] { return fleet.RestartWorker(i); },
           true});
  }

  // Fails when a worker ended too often: something must be done about it. Cancelled: a start was given up for a signal.
  Status Look() {
    for (Watched& service : services_) {
      if (service.given_up) continue;
      if (!service.due_ns && !service.process().Running())
        RETURN_IF_ERROR(Ended(service, "ended by itself (" + service.process().EndText() + ")"));
      if (!service.due_ns || *service.due_ns > SystemClock().NowNs()) continue;
      service.due_ns.reset();
      const Status started = service.start();
      if (!started.has_value() && started.error().code == ErrorCode::kCancelled) return started;
      service.restarts.OnStart(SystemClock().NowNs());
      if (started.has_value()) {
        SayTo(stderr, "kiln: {}: it runs again\n", service.name);
      } else {
        RETURN_IF_ERROR(Ended(service, "could not be started again: " + started.error().message));
      }
    }
    return {};
  }

 private:
  void Add(Watched service) {
    service.restarts.OnStart(SystemClock().NowNs());
    services_.push_back(std::move(service));
  }

  Status Ended(Watched& service, const std::string& how) {
    const int64_t now = SystemClock().NowNs();
    const std::optional<int64_t> pause = service.restarts.OnEnd(now);
    if (pause) {
      service.due_ns = now + *pause;
      SayTo(stderr, "kiln: {} {}; its log is in {}; restart {} of {} in {} s\n", service.name, how, directory_,
            service.restarts.tries(), Restarts::kInARow, *pause / 1'000'000'000);
      return {};
    }
    service.given_up = true;
    const std::string text = fmt::format("{} {}, after {} restarts in a row; its log is in {}", service.name, how,
                                         Restarts::kInARow, directory_);
    if (service.needed) return Fail(ErrorCode::kUnavailable, text + "; the others are stopped too");
    SayTo(stderr, "kiln: {}; it stays away, and the workers go on without it\n", text);
    return {};
  }

  std::string directory_;
  std::vector<Watched> services_;
};

// What the worker would refuse is said before anything starts.
Status CheckModels(const std::vector<std::string>& models) {
  std::set<std::string> names;
  for (const std::string& model : models) {
    const size_t equals = model.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == model.size())
      return Fail(ErrorCode::kInvalidArgument, "--model takes NAME=PATH, not \"" + model + "\"");
    const std::string name = model.substr(0, equals), path = model.substr(equals + 1);
    std::error_code error;
    if (!std::filesystem::exists(path, error))
      return Fail(ErrorCode::kNotFound, "--model " + name + ": there is no file " + path);
    if (!names.insert(name).second)
      return Fail(ErrorCode::kInvalidArgument, "--model " + name + " is given twice; each model needs its own name");
  }
  return {};
}

// SIGINT and SIGTERM, for as long as it lives: blocked, seen by `fd`, and left pending until somebody waits for them.
class StopSignals {
 public:
  static Result<StopSignals> Block() {
    StopSignals signals;
    sigemptyset(&signals.set_);
    sigaddset(&signals.set_, SIGINT);
    sigaddset(&signals.set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals.set_, nullptr);
    signals.fd_ = signalfd(-1, &signals.set_, SFD_CLOEXEC);
    if (signals.fd_ < 0)
      return Fail(ErrorCode::kResourceExhausted, std::string("cannot wait for signals: ") + std::strerror(errno));
    return signals;
  }
  StopSignals(StopSignals&& other) noexcept : set_(other.set_), fd_(std::exchange(other.fd_, -1)) {}
  StopSignals& operator=(StopSignals&&) = delete;
  ~StopSignals() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }
  bool ArrivesWithin(int seconds) const {
    const timespec wait{seconds, 0};
    return sigtimedwait(&set_, nullptr, &wait) > 0;
  }

 private:
  StopSignals() = default;
  sigset_t set_{};
  int fd_ = -1;
};

Status StartAll(const UpFlags& flags, EmbeddedFleet& fleet) {
  Say("cache store      {}\ncompile service  {}\n", fleet.StoreEndpoint(), fleet.CompileEndpoint());
  for (int i = 0; i < flags.workers; ++i) {
    WorkerOptions options{flags.threads, {}, true};
    for (const std::string& model : flags.models) options.arguments.insert(options.arguments.end(), {"--model", model});
    ASSIGN_OR_RETURN(int worker, fleet.StartWorker(options));
    Say("worker {}         {}\n", worker, fleet.WorkerEndpoint(worker));
  }
  Say("logs in {}; stop with Ctrl-C\n", fleet.directory());
  std::fflush(stdout);
  return {};
}

// Until a signal comes; Cancelled where that was before all were ready.
Status RunUntilStopped(const UpFlags& flags, const StopSignals& stop) {
  FleetOptions options{flags.directory, flags.store, 2, {}};
  options.stop_fd = stop.fd();
  ASSIGN_OR_RETURN(auto fleet, EmbeddedFleet::Start(std::move(options)));
  RETURN_IF_ERROR(StartAll(flags, *fleet));
  Watch watch(*fleet);
  while (!stop.ArrivesWithin(kLookEveryS)) RETURN_IF_ERROR(watch.Look());
  Say("stopping\n");
  return {};
}

Result<int> Up(const UpFlags& flags) {
  RETURN_IF_ERROR(CheckModels(flags.models));
  ASSIGN_OR_RETURN(const StopSignals stop, StopSignals::Block());
  const Status ran = RunUntilStopped(flags, stop);
  if (ran.has_value()) return 0;
  if (ran.error().code != ErrorCode::kCancelled) return std::unexpected(ran.error());
  Say("stopped: {}\n", ran.error().message);
  return 0;
}

}  // namespace

void AddUpCommand(CLI::App& app, Action& action) {
  auto flags = std::make_shared<UpFlags>();
  CLI::App* command =
      app.add_subcommand("up", "cache store, compile service and workers on this machine, over ipc sockets");
  command
      ->add_option("--directory", flags->directory,
                   "sockets, keys, logs and the store; made for this user alone, or one that no other can enter")
      ->capture_default_str();
  command->add_option("--store", flags->store, "rocksdb (kept in the directory) or memory")
      ->check(CLI::IsMember({"rocksdb", "memory"}))
      ->capture_default_str();
  command->add_option("--workers", flags->workers, "workers")->check(CLI::Range(1, 64))->capture_default_str();
  command->add_option("--threads", flags->threads, "request threads per worker")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--model", flags->models, "NAME=PATH of a model that every worker loads; may be repeated")
      ->allow_extra_args(false);
  command->callback([flags, &action] { action = [flags] { return Up(*flags); }; });
}

}  // namespace kiln::cli
