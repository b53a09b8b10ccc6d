// Command lines of services. Only for a main.cc: it brings the parser's headers.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <sstream>

#include "common/base/printable.h"
#include "common/base/result.h"

namespace kiln {

// Nothing when the flags are fine; else the exit status, after help or the error was printed: 0 for help, 2 for a flag
// that is unknown, malformed or out of its range.
inline std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, errors;
    const int status = app.exit(error, out, errors);
    std::fputs(PrintableLines(out.str()).c_str(), stdout);
    std::fputs(PrintableLines(errors.str()).c_str(), stderr);
    return status == 0 ? 0 : 2;
  }
}

// A service's main: its flags, then `serve`. The exit status; an error of `serve` is said on standard error.
template <class Serve>
int RunService(const char* name, CLI::App& app, int argc, char** argv, const Serve& serve) {
  if (const auto status = ParseFlags(app, argc, argv)) return *status;
  const Status status = serve();
  if (status.has_value()) return 0;
  std::fprintf(stderr, "%s: %s\n", name, Printable(ToString(status.error())).c_str());
  return ErrorExitCode(status.error().code);
}

}  // namespace kiln
