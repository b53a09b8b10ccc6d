// What the pages say, held against the tree and the binaries.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/shell.h"
#include "tests/support/temp_directory.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string OutputOf(const std::string& command) {
  return testing::RunShell(command).output;
}

std::set<std::string> FlagsIn(const std::string& text) {
  static const std::regex pattern("(^|[^a-z-])(--[a-z][a-z-]*)");
  std::set<std::string> flags;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) flags.insert((*it)[2]);
  return flags;
}

// The part of the page from the table of `binary` to the next one.
std::string TableOf(const std::string& page, const std::string& binary) {
  const size_t begin = page.find("| `" + binary + "` | |");
  return begin == std::string::npos ? std::string() : page.substr(begin, page.find("\n\n", begin) - begin);
}

TEST(OperationsPage, HasEveryFlagOfTheServicesAndNoOther) {
  const std::string page = TextOf(KILN_SOURCE_DIR "/docs/operations.md");
  const std::set<std::string> shared = {"--keys", "--insecure", "--metrics", "--log-level", "--die-with-parent"};
  for (const std::string binary : {"kiln-cache", "kiln-compile", "kiln-worker"}) {
    const std::set<std::string> real = FlagsIn(OutputOf(KILN_BIN_DIR "/" + binary + " --help"));
    ASSERT_TRUE(real.contains("--help")) << binary << " did not print its help";
    // Behind the first column other flags may be mentioned.
    std::set<std::string> listed;
    std::istringstream rows(TableOf(page, binary));
    for (std::string row; std::getline(rows, row);) listed.merge(FlagsIn(row.substr(0, row.find(" | "))));
    for (const std::string& flag : real)
      EXPECT_TRUE(flag == "--help" || shared.contains(flag) || listed.contains(flag))
          << binary << " " << flag << " is not on the page";
    for (const std::string& flag : listed) EXPECT_TRUE(real.contains(flag)) << binary << " has no " << flag;
    for (const std::string& flag : shared) EXPECT_TRUE(real.contains(flag)) << binary << " has no " << flag;
  }
}

TEST(FormatsPage, ItsProgramIsWhatDisPrintsAfterAsm) {
  std::istringstream lines(TextOf(KILN_SOURCE_DIR "/docs/formats.md"));
  std::string program, line;
  while (std::getline(lines, line) && !line.starts_with("<!-- program")) {
  }
  while (std::getline(lines, line) && line.starts_with("    ")) program += line.substr(4) + "\n";
  ASSERT_NE(program, "");
  const testing::TempDirectory directory;
  const std::string stem = directory.path() + "/page";
  std::ofstream(stem + ".kiln") << program;
  const std::string kiln = KILN_BIN_DIR "/kiln";
  EXPECT_EQ(OutputOf(kiln + " asm " + stem + ".kiln -o " + stem + ".kp && " + kiln + " dis " + stem + ".kp"), program);
}

// A path in backticks is relative to the root, to the page's folder, or to the folder above it.
TEST(Pages, NameOnlyFilesThatExist) {
  const fs::path root = KILN_SOURCE_DIR;
  static const std::regex pattern("`([a-z][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)+/?)`");
  int paths = 0;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory() && (name == "build" || name.starts_with("."))) it.disable_recursion_pending();
    if (it->path().extension() != ".md") continue;
    const std::string text = TextOf(it->path());
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) {
      const std::string path = (*at)[1];
      if (path.starts_with("build/")) continue;
      ++paths;
      const fs::path folder = it->path().parent_path();
      EXPECT_TRUE(fs::exists(root / path) || fs::exists(folder / path) || fs::exists(folder.parent_path() / path))
          << it->path() << " names " << path;
    }
  }
  EXPECT_GT(paths, 20) << "the pattern finds no paths any more";
}

}  // namespace
}  // namespace kiln
