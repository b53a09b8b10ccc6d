// `kiln compile`: what a compile service is doing.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/fleet/embedded_fleet.h"
#include "cli/say.h"
#include "common/compile_api/compile_api.h"

namespace kiln::cli {
namespace {

constexpr int64_t kDeadlineMs = 10'000;

struct CompileFlags {
  std::string endpoint = "tcp://127.0.0.1:7411";
  std::string keys;  // empty: plaintext
};

Result<int> PrintStats(const CompileFlags& flags) {
  ASSIGN_OR_RETURN(auto loop, Loop::Start("kiln-compile-cli"));
  ASSIGN_OR_RETURN(auto service, ConnectTool(*loop, flags.endpoint, flags.keys, "compile"));
  ASSIGN_OR_RETURN(const CompileStats stats, CompileStatsSync(*service, kDeadlineMs));
  const std::pair<const char*, uint64_t> rows[] = {{"requests", stats.requests},
                                                   {"joined", stats.joined},
                                                   {"cancelled", stats.cancelled},
                                                   {"failures", stats.failures},
                                                   {"plans", stats.plans},
                                                   {"kernels", stats.kernels},
                                                   {"kernels_reused", stats.kernels_reused},
                                                   {"kernels_refused", stats.kernels_refused},
                                                   {"kernels_timed", stats.kernels_timed},
                                                   {"forms_taken", stats.forms_taken},
                                                   {"throttled", stats.throttled},
                                                   {"reproductions", stats.reproductions},
                                                   {"reproduced", stats.reproduced},
                                                   {"child_crashes", stats.child_crashes},
                                                   {"queued", stats.queued},
                                                   {"running", stats.running}};
  for (const auto& [name, value] : rows) Say("{:<15} {}\n", name, value);
  return 0;
}

}  // namespace

void AddCompileCommand(CLI::App& app, Action& action) {
  auto flags = std::make_shared<CompileFlags>();
  CLI::App* compile = app.add_subcommand("compile", "what a compile service is doing");
  compile->require_subcommand(1);
  compile->add_option("--compile", flags->endpoint, "endpoint of the compile service")->capture_default_str();
  compile->add_option("--keys", flags->keys, "key directory; without one the connection is plaintext");
  CLI::App* stats = compile->add_subcommand("stats", "its counters since it started, and what waits now");
  stats->callback([flags, &action] { action = [flags] { return PrintStats(*flags); }; });
}

}  // namespace kiln::cli
