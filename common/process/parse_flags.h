// Command lines of services. Only for a main.cc: it brings the parser's headers.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

namespace kiln {

// Nothing when the flags are fine; else the exit status, after help or the error was printed: 0 for help, 2 for a flag
// that is unknown, malformed or out of its range.
inline std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
}

}  // namespace kiln
