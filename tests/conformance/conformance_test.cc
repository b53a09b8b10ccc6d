// The ONNX backend tests: every case of scope core that onnxruntime passes must pass, as declared and with every dim a
// symbol, interpreted and again in strictly compiled plans, unless exceptions.tsv names it with a reason. A case in
// that file that passes fails the test: the file only shrinks. Skipped, visibly, where shared/ is absent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "cli/onnx_test/compiled_runner.h"
#include "cli/onnx_test/interpreter_runner.h"
#include "cli/onnx_test/onnx_test.h"

namespace kiln::onnx_test {
namespace {

namespace fs = std::filesystem;

// Share of the compiled cases' nodes, both forms, that reference steps compute. May only fall.
constexpr double kReferenceShareMax = 0.147;

fs::path SharedDirectory() {
  return fs::path(KILN_SOURCE_DIR).parent_path() / "shared" / "conformance";
}
fs::path UnpackedDirectory() {
  return fs::path(KILN_CONFORMANCE_DIR);
}

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields;
  std::stringstream stream(line);
  for (std::string field; std::getline(stream, field, '\t');) fields.push_back(field);
  return fields;
}

// Names of the cases to pass: scope core, passed by onnxruntime.
std::vector<std::string> ExpectedCases() {
  std::vector<std::string> names;
  std::ifstream file(SharedDirectory() / "cases.tsv");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = Fields(line);  // case, scope, op, opset, dtypes, ort, tags
    if (fields.size() > 5 && fields[1] == "core" && fields[5] == "pass") names.push_back(fields[0]);
  }
  return names;
}

// Case -> reason, for one form ("declared", "dynamic", "compiled" or "compiled-dynamic").
std::map<std::string, std::string> Exceptions(const std::string& form) {
  std::map<std::string, std::string> exceptions;
  std::ifstream file(fs::path(KILN_SOURCE_DIR) / "tests/conformance/exceptions.tsv");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> fields = Fields(line);  // case, form, reason
    if (fields.size() == 3 && (fields[1] == form || fields[1] == "both")) exceptions[fields[0]] = fields[2];
  }
  return exceptions;
}

Status Unpack() {
  std::error_code error;
  const fs::path marker = UnpackedDirectory() / "unpacked";
  if (fs::exists(marker, error)) return {};
  fs::create_directories(UnpackedDirectory(), error);
  const std::string command = "tar -xzf '" + (SharedDirectory() / "onnx-backend-tests.tgz").string() + "' -C '" +
                              UnpackedDirectory().string() + "'";
  if (std::system(command.c_str()) != 0) return Fail(ErrorCode::kIoError, "the archive cannot be unpacked");
  std::ofstream(marker) << "\n";
  return {};
}

void RunForm(const RunnerMode& mode, const std::string& form, bool dynamic) {
  if (!fs::exists(SharedDirectory() / "cases.tsv")) {
    GTEST_SKIP() << SharedDirectory() << " is absent: the conformance cases did not run";
  }
  const Status unpacked = Unpack();
  ASSERT_TRUE(unpacked.has_value()) << ToString(unpacked.error());
  const std::map<std::string, std::string> exceptions = Exceptions(form);
  const TestOptions options{.dynamic = dynamic};
  size_t passed = 0;
  for (const std::string& name : ExpectedCases()) {
    const auto cases = FindCases(UnpackedDirectory() / name);
    ASSERT_TRUE(cases.has_value() && cases->size() == 1) << name;
    const CaseResult result = RunCase(cases->front(), mode, options);
    const bool excepted = exceptions.contains(name);
    if (result.outcome == Outcome::kPassed) {
      ++passed;
      EXPECT_FALSE(excepted) << name << " passes: remove it from exceptions.tsv";
    } else {
      EXPECT_TRUE(excepted) << name << " " << OutcomeName(result.outcome) << ": " << result.detail;
    }
  }
  std::printf("%zu cases passed, %zu excepted\n", passed, exceptions.size());
}

TEST(Conformance, CasesPassAsDeclared) {
  RunForm(InterpretedMode(), "declared", false);
}

TEST(Conformance, CasesPassWithEveryDimASymbolAndGiveTheSameBits) {
  RunForm(InterpretedMode(), "dynamic", true);
}

// No interpreter fallback: every segment runs as a plan that the compile service made and the store gave back.
TEST(Conformance, CasesPassStrictlyCompiled) {
  const auto directory = fs::temp_directory_path() / ("kiln-conformance-" + std::to_string(getpid()));
  auto services = CompiledServices::Start(directory.string(), KILN_BIN_DIR);
  ASSERT_TRUE(services.has_value()) << ToString(services.error());
  RunForm((*services)->Mode(cli::StrictTier::kGeneric), "compiled", false);
  RunForm((*services)->Mode(cli::StrictTier::kGeneric), "compiled-dynamic", true);
  const cli::StrictCoverage& coverage = (*services)->coverage();
  std::printf("%u nodes by generated kernels, %u by reference steps\n", coverage.generated_nodes,
              coverage.reference_nodes);
  const double all = coverage.generated_nodes + coverage.reference_nodes;
  EXPECT_LE(coverage.reference_nodes, kReferenceShareMax * all);
}

}  // namespace
}  // namespace kiln::onnx_test
