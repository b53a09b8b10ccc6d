// `kiln models`: what models a worker has loaded, and taking one from it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/fleet/embedded_fleet.h"
#include "cli/say.h"
#include "common/worker_api/worker_api.h"

namespace kiln::cli {
namespace {

constexpr int64_t kDeadlineMs = 10'000;

struct ModelsFlags {
  std::string worker = "tcp://127.0.0.1:7421";
  std::string keys;  // empty: plaintext
  std::string name;  // unload only
};

Result<int> List(const ModelsFlags& flags) {
  ASSIGN_OR_RETURN(auto loop, Loop::Start("kiln-models"));
  ASSIGN_OR_RETURN(auto worker, ConnectTool(*loop, flags.worker, flags.keys, "worker"));
  ASSIGN_OR_RETURN(const ListReply reply, CallList(*worker, kDeadlineMs));
  for (const std::string& name : reply.names) Say("{}\n", name);
  return 0;
}

Result<int> Unload(const ModelsFlags& flags) {
  ASSIGN_OR_RETURN(auto loop, Loop::Start("kiln-models"));
  ASSIGN_OR_RETURN(auto worker, ConnectTool(*loop, flags.worker, flags.keys, "worker"));
  RETURN_IF_ERROR(CallUnload(*worker, {flags.name}, kDeadlineMs));
  Say("unloaded {}\n", flags.name);
  return 0;
}

}  // namespace

void AddModelsCommand(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ModelsFlags>();
  CLI::App* models = app.add_subcommand("models", "the models that a worker has loaded");
  models->require_subcommand(1);
  models->add_option("--worker", flags->worker, "endpoint of the worker")->capture_default_str();
  models->add_option("--keys", flags->keys, "key directory; without one the connection is plaintext");
  CLI::App* list = models->add_subcommand("ls", "their names");
  list->callback([flags, &action] { action = [flags] { return List(*flags); }; });
  CLI::App* unload = models->add_subcommand("unload", "forget one; runs under way finish (role operator)");
  unload->add_option("name", flags->name, "of the model")->required();
  unload->callback([flags, &action] { action = [flags] { return Unload(*flags); }; });
}

}  // namespace kiln::cli
