// Subcommands of `kiln`: each adds its options to the parser and leaves what is to run in `action`.
#pragma once

#include <functional>

#include "common/base/result.h"

namespace CLI {
class App;
}

namespace kiln::cli {

// Exit status of a command that ran; an error becomes ErrorExitCode and its message on stderr.
using Action = std::function<Result<int>()>;

void AddProgramCommands(CLI::App& app, Action& action);  // import, asm, dis, verify
void AddOnnxTestCommand(CLI::App& app, Action& action);  // onnx-test
void AddUpCommand(CLI::App& app, Action& action);        // up
void AddRunCommand(CLI::App& app, Action& action);       // run
void AddCacheCommand(CLI::App& app, Action& action);     // cache ls, stats, purge, pin, unpin, quarantine
void AddExplainCommand(CLI::App& app, Action& action);   // explain
void AddReplayCommand(CLI::App& app, Action& action);    // replay
void AddKeysCommand(CLI::App& app, Action& action);      // keys
void AddPingCommand(CLI::App& app, Action& action);      // ping
void AddModelsCommand(CLI::App& app, Action& action);    // models ls, unload
void AddCompileCommand(CLI::App& app, Action& action);   // compile stats
void AddJobCommand(CLI::App& app, Action& action);       // job

}  // namespace kiln::cli
