// What may include what, and what links what: the boundaries of the folder table, held against the tree and the
// binaries.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <set>

#include "cli/fleet/service_process.h"
#include "common/bytecode/program_text.h"
#include "tests/support/shell.h"
#include "tests/support/temp_directory.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> SourcesBelow(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(KILN_SOURCE_DIR) / folder))
    if (entry.path().extension() == ".cc" || entry.path().extension() == ".h") files.push_back(entry.path());
  return files;
}

std::vector<std::string> IncludesOf(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> includes;
  const std::regex pattern("^#include [<\"]([^>\"]+)[>\"]");
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_search(line, match, pattern)) includes.push_back(match[1]);
  }
  return includes;
}

std::string OutputOf(const std::string& command) {
  return testing::RunShell(command).output;
}

TEST(IncludeDirection, ServicesIncludeOnlyThemselvesCommonAndSchemas) {
  for (const std::string service : {"vm-worker", "compile-service", "cache-store"})
    for (const fs::path& path : SourcesBelow(service))
      for (const std::string& include : IncludesOf(path))
        for (const std::string other : {"vm-worker/", "compile-service/", "cache-store/", "cli/", "tests/"})
          EXPECT_FALSE(include.starts_with(other) && !include.starts_with(service + "/"))
              << path << " includes " << include;
}

TEST(IncludeDirection, CommonIncludesNoService) {
  for (const fs::path& path : SourcesBelow("common"))
    for (const std::string& include : IncludesOf(path))
      for (const std::string other : {"vm-worker/", "compile-service/", "cache-store/", "cli/", "tests/"})
        EXPECT_FALSE(include.starts_with(other)) << path << " includes " << include;
}

TEST(IncludeDirection, LlvmStaysInItsFolder) {
  for (const std::string folder : {"common", "vm-worker", "compile-service", "cache-store", "cli"})
    for (const fs::path& path : SourcesBelow(folder)) {
      if (path.string().find("codegen/llvm") != std::string::npos) continue;
      if (path.string().find("codegen/disassembler") != std::string::npos) continue;
      for (const std::string& include : IncludesOf(path))
        EXPECT_FALSE(include.starts_with("llvm")) << path << " includes " << include;
    }
}

TEST(IncludeDirection, EveryFolderOfSourcesSaysWhatItIsFor) {
  std::set<fs::path> folders;
  for (const std::string folder : {"common", "vm-worker", "compile-service", "cache-store", "cli"})
    for (const fs::path& path : SourcesBelow(folder)) folders.insert(path.parent_path());
  for (const fs::path& folder : folders) EXPECT_TRUE(fs::exists(folder / "README.md")) << folder;
}

// What the command prints goes through cli/say.h, which makes names harmless.
TEST(Output, TheCommandSpeaksThroughOnePlace) {
  for (const fs::path& path : SourcesBelow("cli")) {
    if (path.filename() == "say.h") continue;
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (const char* way :
         {"fmt::print(", "std::printf(", "std::fprintf(", "std::puts(", "std::fputs(", "std::cout", "std::cerr"})
      EXPECT_EQ(text.find(way), std::string::npos) << path << " uses " << way;
  }
}

TEST(LinkContents, EachBinaryLinksOnlyWhatItsRoleNeeds) {
  const std::map<std::string, std::vector<std::string>> forbidden = {
      {"kiln-worker", {"libLLVM", "librocksdb", "libcuda", "libnvrtc"}},
      {"kiln-cache", {"libLLVM", "libcuda", "libnvrtc", "libprotobuf"}},
      {"kiln-compile", {"libLLVM", "librocksdb", "libcuda", "libnvrtc"}},
      {"kiln-validate-child", {"libLLVM", "librocksdb", "libcuda", "libnvrtc"}},
      {"kiln-compile-child", {"librocksdb", "libcuda", "libnvrtc"}},
      {"kiln", {"libLLVM", "librocksdb", "libcuda", "libnvrtc"}}};
  for (const auto& [binary, libraries] : forbidden) {
    const std::string linked = OutputOf("ldd " KILN_BIN_DIR "/" + binary);
    ASSERT_NE(linked.find("libc.so"), std::string::npos) << binary;
    for (const std::string& library : libraries)
      EXPECT_EQ(linked.find(library), std::string::npos) << binary << " links " << library;
  }
  const auto ops_in = [](const std::string& binary) {
    return OutputOf("nm -C " KILN_BIN_DIR "/" + binary + " | grep -c FindReferenceKernel");
  };
  EXPECT_NE(ops_in("kiln-worker"), "0\n") << "the worker has ops under this name";
  EXPECT_EQ(ops_in("kiln-cache"), "0\n") << "the cache store links no ops";
}

// The worker is light: binary and its own libraries at most 40 MB, idle resident at most 40 MB.
TEST(WorkerSize, BinaryAndItsOwnLibrariesAreSmall) {
  int64_t bytes = static_cast<int64_t>(fs::file_size(KILN_BIN_DIR "/kiln-worker"));
  std::istringstream lines(OutputOf("ldd " KILN_BIN_DIR "/kiln-worker | awk '$3 ~ /^\\// {print $3}'"));
  for (std::string path; std::getline(lines, path);) {
    // The C and C++ run-time libraries are every program's.
    if (path.find("/libc.so") != std::string::npos || path.find("libstdc++") != std::string::npos ||
        path.find("/libm.so") != std::string::npos)
      continue;
    bytes += static_cast<int64_t>(fs::file_size(fs::canonical(path)));
  }
  std::printf("kiln-worker with its libraries: %.1f MB\n", static_cast<double>(bytes) / 1e6);
  EXPECT_LE(bytes, 40'000'000);
}

TEST(WorkerSize, IdleResidentMemoryIsSmall) {
  const testing::TempDirectory directory;
  const std::string& path = directory.path();
  auto worker = cli::ServiceProcess::Start(
      KILN_BIN_DIR "/kiln-worker", {"--insecure", "--keys", path + "/keys", "--listen", "ipc://" + path + "/w.sock"},
      path + "/worker.log", 20'000);
  ASSERT_TRUE(worker.has_value()) << ToString(worker.error());
  const std::string output = OutputOf("grep VmRSS /proc/" + std::to_string((*worker)->pid()) + "/status");
  (*worker)->Stop();
  const size_t at = output.find_first_of("0123456789");
  ASSERT_NE(at, std::string::npos) << output;
  const int64_t kilobytes = std::stoll(output.substr(at));
  std::printf("kiln-worker idle: %.1f MB resident\n", static_cast<double>(kilobytes) / 1024);
  EXPECT_LE(kilobytes, 40 * 1024);
}

// What a VM context holds apart from its arena (which is mapped, not allocated), after many programs' worth of shapes.
TEST(WorkerSize, AVmContextIsSmallWithoutItsArena) {
  Program program = ParseProgram(R"(program "p" {
    symbol n in [1, 100000]
    func main(%x: f32[n, 16]) -> (%d) {
      %a : f32[n, 16] = Exp(%x)
      %b : f32[n, 16] = Softmax(%a)
      %c : f32[16, n] = Transpose(%b)
      %d : f32[16, n] = Relu(%c)
    }
  })")
                        .value();
  const auto loaded = LoadedProgram::Load(std::move(program)).value();
  const size_t before = mallinfo2().uordblks;
  VmContext context;
  for (int64_t n = 1; n <= 3000; ++n) {
    const Tensor x = Tensor::Zeros(DType::kF32, {n % 300 + 1, 16});
    ASSERT_TRUE(context.RunBorrowed(*loaded, std::vector{x.ref}).has_value());
    Tensor wide = Tensor::Zeros(DType::kF32, {n, 16});
    ASSERT_TRUE(context.RunBorrowed(*loaded, std::vector{wide.ref}).has_value());
  }
  const size_t bytes = mallinfo2().uordblks - before;
  std::printf("VM context after 3000 shapes: %.2f MB\n", static_cast<double>(bytes) / 1e6);
  EXPECT_LE(bytes, 2'000'000u);
}

}  // namespace
}  // namespace kiln
