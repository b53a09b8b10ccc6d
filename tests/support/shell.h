// What a shell command prints and how it ends.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace kiln::testing {

struct ShellRun {
  int status = -1;     // exit status; -1: it did not start, or a signal ended it
  std::string output;  // what the command sends to its standard output
};

inline ShellRun RunShell(const std::string& command) {
  ShellRun run;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  std::array<char, 4096> block;
  while (const size_t count = std::fread(block.data(), 1, block.size(), pipe)) run.output.append(block.data(), count);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) run.status = WEXITSTATUS(status);
  return run;
}

}  // namespace kiln::testing
