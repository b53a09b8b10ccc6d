#include "tests/support/cuda/shim_compiler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

extern char** environ;

namespace kiln::testing {
namespace {

#if defined(__clang__)
constexpr const char* kOwnSymbols[] = {"-fvisibility=hidden"};
#else
constexpr const char* kOwnSymbols[] = {"-fvisibility=hidden", "-fno-gnu-unique"};
#endif

// Libraries share no symbols, equal sources give equal bytes, and products and sums are rounded one by one.
std::vector<std::string> Command(const std::string& source, const std::string& library) {
  std::vector<std::string> words = {KILN_SHIM_CXX,
                                    "-std=c++20",
                                    "-O1",
                                    "-w",
                                    "-shared",
                                    "-fPIC",
                                    "-march=native",
                                    "-ffp-contract=off",
                                    "-fno-strict-aliasing",
                                    "-U_FORTIFY_SOURCE",
                                    "-Wl,--build-id=none",
                                    "-s"};
  words.insert(words.end(), std::begin(kOwnSymbols), std::end(kOwnSymbols));
  words.insert(words.end(), {"-include", KILN_SHIM_HEADER, "-x", "c++", source, "-o", library});
  return words;
}

// What the compiler says on its error output, where it fails.
std::optional<std::string> Spawn(std::vector<std::string> words, const std::string& log) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int spawned = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (spawned != 0) return words[0] + " did not start";
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  std::ostringstream text;
  text << std::ifstream(log).rdbuf();
  return text.str().substr(0, 4000);
}

}  // namespace

std::optional<std::string> CompileForShim(const std::string& source, const std::string& library) {
  return Spawn(Command(source, library), library + ".log");
}

}  // namespace kiln::testing
