#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/fleet/scratch_directory.h"
#include "cli/onnx_test/compiled_runner.h"
#include "cli/onnx_test/interpreter_runner.h"
#include "cli/onnx_test/onnx_test.h"
#include "cli/say.h"

namespace kiln::cli {
namespace {

struct OnnxTestArguments {
  std::vector<std::string> directories;
  std::string model;
  std::string list;
  std::string mode = "both";
  bool exact = false;
  bool json = false;
  bool verbose = false;
  onnx_test::TestOptions options;
};

// Case names, one a line; '#' starts a comment line.
Result<std::set<std::string>> ReadList(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return Fail(ErrorCode::kInvalidArgument, "--list " + path + " is not a regular file");
  std::ifstream file(path);
  if (!file) return Fail(ErrorCode::kNotFound, "--list " + path + " cannot be read");
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line[0] != '#') names.insert(line);
  }
  return names;
}

Result<std::vector<onnx_test::VectorCase>> Cases(const OnnxTestArguments& arguments) {
  std::vector<onnx_test::VectorCase> cases;
  for (const std::string& directory : arguments.directories) {
    ASSIGN_OR_RETURN(std::vector<onnx_test::VectorCase> found, onnx_test::FindCases(directory, arguments.model));
    cases.insert(cases.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  }
  if (arguments.list.empty()) return cases;
  ASSIGN_OR_RETURN(std::set<std::string> names, ReadList(arguments.list));
  std::set<std::string> unknown = names;
  for (const onnx_test::VectorCase& test : cases) unknown.erase(test.name);
  if (!unknown.empty())
    return Fail(ErrorCode::kNotFound, "--list " + arguments.list + " names " + std::to_string(unknown.size()) +
                                          " cases that are not there, \"" + *unknown.begin() +
                                          "\" first; a case is named by its path below the directory");
  std::erase_if(cases, [&](const onnx_test::VectorCase& test) { return !names.contains(test.name); });
  return cases;
}

void PrintResult(const onnx_test::CaseResult& result, const OnnxTestArguments& arguments) {
  const std::string outcome(onnx_test::OutcomeName(result.outcome));
  if (arguments.json) {
    const nlohmann::json line = {
        {"case", result.name}, {"mode", result.mode}, {"outcome", outcome}, {"detail", result.detail}};
    SayLines(line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
    return;
  }
  if (result.outcome == onnx_test::Outcome::kPassed && !arguments.verbose) return;
  Say("{} {} ({}){}{}\n", outcome, result.name, result.mode, result.detail.empty() ? "" : ": ", result.detail);
}

// As text; or as the last line of JSON, and then the text goes to stderr.
void PrintCoverage(const StrictCoverage& coverage, bool json) {
  FILE* const text = json ? stderr : stdout;
  SayTo(text,
        "compiled: {} segments, {} nodes by generated kernels, {} by reference steps, {} kernels ({} compiled here)\n",
        coverage.segments, coverage.generated_nodes, coverage.reference_nodes, coverage.kernels,
        coverage.kernels_compiled);
  for (const auto& [reason, count] : coverage.ends)
    SayTo(text, "segments that end because {}: {}\n", SegmentEndText(reason), count);
  if (!json) return;
  nlohmann::json ops = nlohmann::json::object();
  for (const auto& [op, count] : coverage.ops)
    ops[OpInfo(op).name] = {{"generated", count.generated}, {"reference", count.reference}};
  const nlohmann::json line = {{"compiled",
                                {{"segments", coverage.segments},
                                 {"generated_nodes", coverage.generated_nodes},
                                 {"reference_nodes", coverage.reference_nodes},
                                 {"kernels", coverage.kernels},
                                 {"ops", std::move(ops)}}}};
  SayLines(line.dump() + "\n");
}

Result<int> RunOnnxTest(const OnnxTestArguments& arguments) {
  for (const double tolerance : {arguments.options.tolerance.relative, arguments.options.tolerance.absolute})
    if (!(tolerance >= 0))
      return Fail(ErrorCode::kInvalidArgument,
                  "a tolerance is " + std::to_string(tolerance) + "; --rtol and --atol take 0 or more");
  ASSIGN_OR_RETURN(const std::vector<onnx_test::VectorCase> cases, Cases(arguments));
  if (cases.empty()) return Fail(ErrorCode::kNotFound, "no model with test_data_set_* directories was found");
  std::vector<onnx_test::RunnerMode> modes;
  std::unique_ptr<ScratchDirectory> scratch;
  std::unique_ptr<onnx_test::CompiledServices> services;
  if (arguments.mode != "compiled") modes.push_back(onnx_test::InterpretedMode());
  if (arguments.mode != "interpreted") {
    ASSIGN_OR_RETURN(scratch, ScratchDirectory::Make("kiln-onnx-test"));
    ASSIGN_OR_RETURN(services, onnx_test::CompiledServices::Start(scratch->path()));
    modes.push_back(services->Mode(arguments.exact ? StrictTier::kExact : StrictTier::kGeneric));
  }
  const onnx_test::Summary summary = RunCases(
      cases, modes, arguments.options, [&](const onnx_test::CaseResult& result) { PrintResult(result, arguments); });
  if (services != nullptr) PrintCoverage(services->coverage(), arguments.json);
  SayTo(arguments.json ? stderr : stdout, "{} passed, {} failed, {} skipped\n", summary.passed, summary.failed,
        summary.skipped);
  return summary.failed == 0 ? 0 : 1;
}

}  // namespace

void AddOnnxTestCommand(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("onnx-test", "Run models on their test vectors and compare the outputs");
  const auto arguments = std::make_shared<OnnxTestArguments>();
  command->add_option("directories", arguments->directories, "Searched for model.onnx with test_data_set_*")
      ->required();
  command->add_option("--model", arguments->model, "The model of all data sets below the directories");
  command->add_option("--list", arguments->list, "Run only the cases named in this file, one a line");
  command
      ->add_option("--mode", arguments->mode,
                   "What executes: interpreted, compiled (strict: no interpreter fallback) or both")
      ->check(CLI::IsMember({"interpreted", "compiled", "both"}))
      ->capture_default_str();
  command->add_flag("--exact", arguments->exact,
                    "Compiled plans for exactly the data set's shapes instead of generic ones");
  command->add_option("--rtol", arguments->options.tolerance.relative, "Relative tolerance")->capture_default_str();
  command->add_option("--atol", arguments->options.tolerance.absolute, "Absolute tolerance")->capture_default_str();
  command->add_flag("--dynamic", arguments->options.dynamic,
                    "Make every input dim a symbol, and demand results bit-identical to the declared form");
  command->add_flag("--json", arguments->json,
                    "One JSON object a line instead of text: the cases, then what plans cover per op");
  command->add_flag("--verbose", arguments->verbose, "Also print cases that passed");
  command->callback([arguments, &action] { action = [arguments] { return RunOnnxTest(*arguments); }; });
}

}  // namespace kiln::cli
