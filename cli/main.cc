// kiln: the command line.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>

#include "cli/commands.h"
#include "cli/say.h"

int main(int argc, char** argv) {
  CLI::App app{"Kiln runs dynamic-shape tensor programs: interpreted at once, compiled where it pays."};
  app.name("kiln");
  app.require_subcommand(1);
  kiln::cli::Action action;
  kiln::cli::AddProgramCommands(app, action);
  kiln::cli::AddOnnxTestCommand(app, action);
  kiln::cli::AddUpCommand(app, action);
  kiln::cli::AddRunCommand(app, action);
  kiln::cli::AddCacheCommand(app, action);
  kiln::cli::AddExplainCommand(app, action);
  kiln::cli::AddReplayCommand(app, action);
  kiln::cli::AddKeysCommand(app, action);
  kiln::cli::AddPingCommand(app, action);
  kiln::cli::AddModelsCommand(app, action);
  kiln::cli::AddCompileCommand(app, action);
  kiln::cli::AddJobCommand(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::string command = argc > 1 ? argv[1] : "";
    if (!command.empty() && command[0] != '-' &&
        app.get_subcommands([&](const CLI::App* known) { return known->get_name() == command; }).empty()) {
      kiln::cli::SayTo(stderr, "kiln: there is no command \"{}\"; kiln --help lists them\n", command);
      return 2;
    }
    std::ostringstream out, errors;
    const int status = app.exit(error, out, errors);
    kiln::cli::SayLines(out.str());
    kiln::cli::SayLines(errors.str(), stderr);
    return status == 0 ? 0 : 2;
  }
  try {
    kiln::Result<int> status = action();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      if (status.has_value())
        status = kiln::Fail(kiln::ErrorCode::kIoError, "standard output cannot be written; is its disk full?");
    if (status.has_value()) return *status;
    kiln::cli::SayTo(stderr, "kiln: {}\n", kiln::ToString(status.error()));
    return kiln::ErrorExitCode(status.error().code);
  } catch (const std::bad_alloc&) {
    kiln::cli::SayTo(stderr, "kiln: resource_exhausted: this process has no memory for so large a model or tensor\n");
    return kiln::ErrorExitCode(kiln::ErrorCode::kResourceExhausted);
  } catch (const std::exception& exception) {
    kiln::cli::SayTo(stderr, "kiln: io_error: {}\n", exception.what());
    return kiln::ErrorExitCode(kiln::ErrorCode::kIoError);
  }
}
