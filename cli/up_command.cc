// `kiln up`: the embedded default, kept running until it is stopped.
#include <fmt/format.h>
#include <signal.h>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/fleet/embedded_fleet.h"

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

// Workers answer without these two, so what ended may end again: each look tries once.
void StartAgain(EmbeddedFleet& fleet) {
  const auto start = [&fleet](ServiceProcess& process, const char* name, Status (EmbeddedFleet::*again)()) {
    if (process.Running()) return;
    const Status status = (fleet.*again)();
    fmt::print(stderr, "kiln: {} ended by itself; its log is in {}; {}\n", name, fleet.directory(),
               status.has_value() ? "it runs again" : "starting it again failed: " + status.error().message);
  };
  start(fleet.cache(), "kiln-cache", &EmbeddedFleet::StartCache);
  start(fleet.compile(), "kiln-compile", &EmbeddedFleet::StartCompile);
}

Result<int> Up(const UpFlags& flags) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  ASSIGN_OR_RETURN(auto fleet, EmbeddedFleet::Start({flags.directory, flags.store, 2, {}}));
  fmt::print("cache store      {}\ncompile service  {}\n", fleet->StoreEndpoint(), fleet->CompileEndpoint());
  for (int i = 0; i < flags.workers; ++i) {
    WorkerOptions options{flags.threads, {}, true};
    for (const std::string& model : flags.models) options.arguments.insert(options.arguments.end(), {"--model", model});
    ASSIGN_OR_RETURN(int worker, fleet->StartWorker(options));
    fmt::print("worker {}         {}\n", worker, fleet->WorkerEndpoint(worker));
  }
  fmt::print("logs in {}; stop with Ctrl-C\n", fleet->directory());
  std::fflush(stdout);
  const timespec look_every{kLookEveryS, 0};
  while (sigtimedwait(&stop, nullptr, &look_every) < 0) {
    const std::string worker = fleet->FirstEndedWorker();
    if (!worker.empty())
      return Fail(ErrorCode::kUnavailable,
                  worker + " ended by itself; its log is in " + fleet->directory() + "; the others are stopped too");
    StartAgain(*fleet);
  }
  fmt::print("stopping\n");
  return 0;
}

}  // namespace

void AddUpCommand(CLI::App& app, Action& action) {
  auto flags = std::make_shared<UpFlags>();
  CLI::App* command =
      app.add_subcommand("up", "cache store, compile service and workers on this machine, over ipc sockets");
  command->add_option("--directory", flags->directory, "sockets, keys, logs and the store")->capture_default_str();
  command->add_option("--store", flags->store, "rocksdb (kept in the directory) or memory")
      ->check(CLI::IsMember({"rocksdb", "memory"}))
      ->capture_default_str();
  command->add_option("--workers", flags->workers, "workers")->check(CLI::Range(1, 64))->capture_default_str();
  command->add_option("--threads", flags->threads, "request threads per worker")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--model", flags->models, "NAME=PATH of a model that every worker loads; may be repeated");
  command->callback([flags, &action] { action = [flags] { return Up(*flags); }; });
}

}  // namespace kiln::cli
