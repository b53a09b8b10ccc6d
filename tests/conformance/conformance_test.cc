// The ONNX backend tests. Every case of scope core must pass, as declared and with every dim a symbol, interpreted and
// again in strictly compiled plans, unless exceptions.tsv names it with a reason; a case in that file that passes fails
// the test: the file only shrinks. A case of scope extra, in the same forms, passes, is refused by an error that says
// what is not supported, or draws random numbers. kernel_nodes.tsv is how many nodes of each op generated kernels
// compute: it only rises.
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
#include "tests/support/shared_material.h"

namespace kiln::onnx_test {
namespace {

namespace fs = std::filesystem;

// Share of the compiled cases' nodes, both forms, that reference steps compute. May only fall.
constexpr double kReferenceShareMax = 0.0550;
// Cases of scope core that pass, in every form. May only rise: a shorter list of cases fails.
constexpr size_t kCorePassedMin = 1170;
// Cases of scope extra that pass, as declared and with every dim a symbol. May only rise.
constexpr size_t kExtraPassedMin = 12, kExtraPassedDynamicMin = 12;

fs::path ArchiveDirectory() {
  return SharedDirectory() / "conformance";
}
fs::path UnpackedDirectory() {
  return fs::path(KILN_CONFORMANCE_DIR);
}
fs::path SourceDirectory() {
  return fs::path(KILN_SOURCE_DIR) / "tests" / "conformance";
}

// The fields of each line but comments.
std::vector<std::vector<std::string>> ReadTable(const fs::path& path) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::stringstream stream(line);
    std::vector<std::string>& fields = rows.emplace_back();
    for (std::string field; std::getline(stream, field, '\t');) fields.push_back(field);
  }
  return rows;
}

// Names of the cases of a scope.
std::vector<std::string> CasesOf(const std::string& scope) {
  std::vector<std::string> names;
  for (const std::vector<std::string>& row : ReadTable(ArchiveDirectory() / "cases.tsv"))  // case, scope, op, …
    if (row.size() > 2 && row[1] == scope) names.push_back(row[0]);
  return names;
}

// Case -> reason, for one form ("declared", "dynamic", "compiled" or "compiled-dynamic").
std::map<std::string, std::string> Exceptions(const std::string& form) {
  std::map<std::string, std::string> exceptions;
  for (const std::vector<std::string>& row : ReadTable(SourceDirectory() / "exceptions.tsv"))  // case, form, reason
    if (row.size() == 3 && (row[1] == form || row[1] == "both")) exceptions[row[0]] = row[2];
  return exceptions;
}

Status Unpack() {
  std::error_code error;
  const fs::path marker = UnpackedDirectory() / "unpacked";
  if (fs::exists(marker, error)) return {};
  fs::create_directories(UnpackedDirectory(), error);
  const std::string command = "tar -xzf '" + (ArchiveDirectory() / "onnx-backend-tests.tgz").string() + "' -C '" +
                              UnpackedDirectory().string() + "'";
  if (std::system(command.c_str()) != 0) return Fail(ErrorCode::kIoError, "the archive cannot be unpacked");
  std::ofstream(marker) << "\n";
  return {};
}

CaseResult RunNamed(const std::string& name, const RunnerMode& mode, const TestOptions& options) {
  const auto cases = FindCases(UnpackedDirectory() / name);
  if (!cases.has_value() || cases->size() != 1) return {name, mode.name, Outcome::kFailed, "the archive lacks it"};
  return RunCase(cases->front(), mode, options);
}

void RunForm(const RunnerMode& mode, const std::string& form, bool dynamic) {
  KILN_NEEDS_SHARED(ArchiveDirectory() / "cases.tsv");
  const Status unpacked = Unpack();
  ASSERT_TRUE(unpacked.has_value()) << ToString(unpacked.error());
  const std::map<std::string, std::string> exceptions = Exceptions(form);
  size_t passed = 0;
  for (const std::string& name : CasesOf("core")) {
    const CaseResult result = RunNamed(name, mode, {.dynamic = dynamic});
    const bool excepted = exceptions.contains(name);
    if (result.outcome == Outcome::kPassed) {
      ++passed;
      EXPECT_FALSE(excepted) << name << " passes: remove it from exceptions.tsv";
    } else {
      EXPECT_TRUE(excepted) << name << " " << OutcomeName(result.outcome) << ": " << result.detail;
    }
  }
  std::printf("%zu cases passed, %zu excepted\n", passed, exceptions.size());
  EXPECT_GE(passed, kCorePassedMin);
}

// Counts that fell fail. The counts of this run lie beside the unpacked archive, as a table to check in.
void ExpectNoOpFell(const cli::StrictCoverage& coverage) {
  const fs::path measured = UnpackedDirectory() / "kernel_nodes.tsv";
  {
    std::ofstream file(measured);
    file << "# Nodes of the compiled cases, both forms, that generated kernels compute, per op. May only rise.\n# "
            "op\tnodes\n";
    for (int i = 0; i < TensorOpCount(); ++i)
      if (const auto op = coverage.ops.find(TensorOpRow(i).op); op != coverage.ops.end() && op->second.generated > 0)
        file << TensorOpRow(i).name << '\t' << op->second.generated << '\n';
  }
  size_t risen = 0;
  std::map<TensorOp, uint32_t> floor;
  for (const std::vector<std::string>& row : ReadTable(SourceDirectory() / "kernel_nodes.tsv")) {  // op, nodes
    ASSERT_EQ(row.size(), 2u);
    const std::optional<TensorOp> op = TensorOpFromName(row[0]);
    ASSERT_TRUE(op.has_value()) << row[0] << " is no op";
    floor[*op] = static_cast<uint32_t>(std::stoul(row[1]));
  }
  for (const auto& [op, nodes] : floor) {
    const auto found = coverage.ops.find(op);
    const cli::OpCoverage now = found == coverage.ops.end() ? cli::OpCoverage{} : found->second;
    EXPECT_GE(now.generated, nodes) << OpInfo(op).name << ": generated kernels compute fewer nodes than before; "
                                    << now.reference
                                    << " are left to reference steps. Where they are neither, an import "
                                    << "or pass has removed them: copy " << measured << " over kernel_nodes.tsv then";
  }
  for (const auto& [op, count] : coverage.ops) risen += count.generated > floor[op];
  if (risen > 0)
    std::printf("%zu ops have more nodes in generated kernels than before: copy %s over %s\n", risen, measured.c_str(),
                (SourceDirectory() / "kernel_nodes.tsv").c_str());
}

// What has no kernel yet, the most first.
void PrintReferenceNodes(const cli::StrictCoverage& coverage) {
  std::vector<std::pair<uint32_t, TensorOp>> left;
  for (const auto& [op, count] : coverage.ops)
    if (count.reference > 0) left.emplace_back(count.reference, op);
  std::ranges::sort(left, std::greater());
  for (const auto& [nodes, op] : left) std::printf("  %u times %s\n", nodes, std::string(OpInfo(op).name).c_str());
}

TEST(Conformance, CasesPassAsDeclared) {
  RunForm(InterpretedMode(), "declared", false);
}

TEST(Conformance, CasesPassWithEveryDimASymbolAndGiveTheSameBits) {
  RunForm(InterpretedMode(), "dynamic", true);
}

// A case of scope extra passes, draws random numbers that nobody can compare, or import refuses it by an error that
// says what is not supported; nothing else.
void RunExtra(const RunnerMode& mode, bool dynamic) {
  KILN_NEEDS_SHARED(ArchiveDirectory() / "cases.tsv");
  const Status unpacked = Unpack();
  ASSERT_TRUE(unpacked.has_value()) << ToString(unpacked.error());
  size_t passed = 0;
  for (const std::string& name : CasesOf("extra")) {
    const CaseResult result = RunNamed(name, mode, {.dynamic = dynamic});
    passed += result.outcome == Outcome::kPassed;
    if (result.outcome == Outcome::kPassed) continue;
    EXPECT_EQ(result.outcome, Outcome::kSkipped) << name << ": " << result.detail;
    EXPECT_THAT(result.detail, ::testing::AnyOf(::testing::HasSubstr("support"), ::testing::HasSubstr("random")))
        << name;
  }
  std::printf("%zu cases of scope extra passed\n", passed);
  EXPECT_GE(passed, dynamic ? kExtraPassedDynamicMin : kExtraPassedMin);
}

TEST(Conformance, CasesOfScopeExtraPassOrAreRefusedByAClearError) {
  for (const bool dynamic : {false, true}) RunExtra(InterpretedMode(), dynamic);
}

std::unique_ptr<CompiledServices> StartServices() {
  const auto directory = fs::temp_directory_path() / ("kiln-conformance-" + std::to_string(getpid()));
  auto services = CompiledServices::Start(directory.string(), KILN_BIN_DIR);
  EXPECT_TRUE(services.has_value()) << ToString(services.error());
  return services.has_value() ? *std::move(services) : nullptr;
}

TEST(Conformance, CasesOfScopeExtraDoSoStrictlyCompiled) {
  KILN_NEEDS_SHARED(ArchiveDirectory() / "cases.tsv");
  const auto services = StartServices();
  ASSERT_NE(services, nullptr);
  for (const bool dynamic : {false, true}) RunExtra(services->Mode(cli::StrictTier::kGeneric), dynamic);
}

// No interpreter fallback: every segment runs as a plan that the compile service made and the store gave back.
TEST(Conformance, CasesPassStrictlyCompiled) {
  KILN_NEEDS_SHARED(ArchiveDirectory() / "cases.tsv");
  const auto services = StartServices();
  ASSERT_NE(services, nullptr);
  RunForm(services->Mode(cli::StrictTier::kGeneric), "compiled", false);
  RunForm(services->Mode(cli::StrictTier::kGeneric), "compiled-dynamic", true);
  const cli::StrictCoverage& coverage = services->coverage();
  const double all = coverage.generated_nodes + coverage.reference_nodes;
  std::printf("%u nodes by generated kernels, %u by reference steps: a share of %.4f\n", coverage.generated_nodes,
              coverage.reference_nodes, coverage.reference_nodes / all);
  PrintReferenceNodes(coverage);
  EXPECT_LE(coverage.reference_nodes, kReferenceShareMax * all);
  ExpectNoOpFell(coverage);
}

}  // namespace
}  // namespace kiln::onnx_test
