#include "cli/onnx_test/onnx_test.h"

#include "vm-worker/load/bind_inputs.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::onnx_test {
namespace {

// A program loaded for one case, with what binding needs.
struct LoadedCase {
  Program program;  // shares the constants of the loaded one
  std::unique_ptr<ProgramRunner> runner;

  bool is_repeatable() const { return RequireRepeatable(program).has_value(); }
};

Result<LoadedCase> LoadCase(const VectorCase& test, const RunnerMode& mode, bool dynamic) {
  ASSIGN_OR_RETURN(ImportedModel model, ImportOnnx(test.model, ImportOptions{.all_dims_dynamic = dynamic}));
  LoadedCase loaded{.program = model.program};
  ASSIGN_OR_RETURN(loaded.runner, mode.load(std::move(model.program)));
  return loaded;
}

Result<std::vector<Tensor>> RunOn(LoadedCase& loaded, const DataSet& set) {
  std::vector<NamedInput> given;
  for (const onnx::NamedTensor& input : set.inputs) given.push_back(NamedInput{input.name, input.tensor.ref});
  ASSIGN_OR_RETURN(const std::vector<TensorRef> inputs, BindInputs(loaded.program, given));
  return loaded.runner->Run(inputs);
}

// Position of an expected output among the program's: by name where it matches one, else as listed.
size_t PositionOf(const Program& program, const std::string& name, size_t listed) {
  const Function& entry = program.entry();
  const std::vector<ValueId>& outputs = entry.regions[0].outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!name.empty() && entry.values[static_cast<size_t>(outputs[i])].name == name) return i;
  }
  return listed;
}

std::optional<std::string> Compare(const LoadedCase& loaded, const DataSet& set, const std::vector<Tensor>& actual,
                                   const Tolerance& tolerance) {
  if (set.outputs.size() != actual.size())
    return "the data set has " + std::to_string(set.outputs.size()) +
           " expected outputs (output_N.pb), the model has " + std::to_string(actual.size());
  for (size_t i = 0; i < set.outputs.size(); ++i) {
    const size_t position = PositionOf(loaded.program, set.outputs[i].name, i);
    if (position >= actual.size()) return "output " + std::to_string(i) + " is missing";
    const TensorRef &expected = set.outputs[i].tensor.ref, &given = actual[position].ref;
    // Of values that are drawn, only type and shape can be held to a vector.
    if (!loaded.is_repeatable() && expected.dtype == given.dtype && expected.dims == given.dims) continue;
    if (auto difference = FirstDifference(expected, given, tolerance.For(given.dtype))) {
      return "output " + std::to_string(position) + " '" + set.outputs[i].name + "' " + *difference;
    }
  }
  return std::nullopt;
}

// Outputs of the dynamic form against those of the declared one.
std::optional<std::string> CompareBits(const std::vector<Tensor>& actual, const std::vector<Tensor>& declared) {
  for (size_t i = 0; i < std::min(actual.size(), declared.size()); ++i) {
    if (auto difference = FirstDifference(declared[i].ref, actual[i].ref, ErrorBound{})) {
      return "output " + std::to_string(i) + " with dynamic dims against declared ones " + *difference;
    }
  }
  return std::nullopt;
}

std::optional<std::string> RunDataSet(const std::filesystem::path& path, LoadedCase& loaded, LoadedCase* declared,
                                      const TestOptions& options) {
  const auto set = ReadDataSet(path);
  if (!set.has_value()) return ToString(set.error());
  const auto actual = RunOn(loaded, *set);
  if (!actual.has_value()) return ToString(actual.error());
  if (auto difference = Compare(loaded, *set, *actual, options.tolerance)) return difference;
  if (declared == nullptr || !loaded.is_repeatable()) return std::nullopt;
  const auto expected = RunOn(*declared, *set);
  if (!expected.has_value()) return "as declared: " + ToString(expected.error());
  return CompareBits(*actual, *expected);
}

CaseResult NotLoaded(const VectorCase& test, const RunnerMode& mode, const Error& error) {
  const Outcome outcome = error.code == ErrorCode::kUnsupported ? Outcome::kSkipped : Outcome::kFailed;
  return CaseResult{test.name, mode.name, outcome, error.message};
}

}  // namespace

ErrorBound Tolerance::For(DType dtype) const {
  const bool is_half = dtype == DType::kF16 || dtype == DType::kBF16;
  return {.scope = ErrorScope::kElement,
          .relative = is_half ? std::max(relative, half) : relative,
          .tiny = is_half ? std::max(absolute, half) : absolute};
}

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed:
      return "passed";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kSkipped:
      return "skipped";
  }
  return "?";
}

void Summary::Count(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed:
      ++passed;
      break;
    case Outcome::kFailed:
      ++failed;
      break;
    case Outcome::kSkipped:
      ++skipped;
      break;
  }
}

CaseResult RunCase(const VectorCase& test, const RunnerMode& mode, const TestOptions& options) {
  auto loaded = LoadCase(test, mode, options.dynamic);
  if (!loaded.has_value()) return NotLoaded(test, mode, loaded.error());
  std::optional<LoadedCase> declared;
  if (options.dynamic && mode.same_bits_when_dynamic) {
    auto also = LoadCase(test, mode, false);
    if (!also.has_value()) return NotLoaded(test, mode, also.error());
    declared = *std::move(also);
  }
  for (const std::filesystem::path& path : test.data_sets) {
    if (auto failure = RunDataSet(path, *loaded, declared ? &*declared : nullptr, options)) {
      return CaseResult{test.name, mode.name, Outcome::kFailed, path.filename().string() + ": " + *failure};
    }
  }
  if (const Status status = RequireRepeatable(loaded->program); !status)
    return CaseResult{test.name, mode.name, Outcome::kSkipped, status.error().message};
  return CaseResult{test.name, mode.name, Outcome::kPassed, {}};
}

Summary RunCases(const std::vector<VectorCase>& cases, const std::vector<RunnerMode>& modes, const TestOptions& options,
                 const std::function<void(const CaseResult&)>& report) {
  Summary summary;
  for (const VectorCase& test : cases) {
    for (const RunnerMode& mode : modes) {
      const CaseResult result = RunCase(test, mode, options);
      summary.Count(result.outcome);
      report(result);
    }
  }
  return summary;
}

}  // namespace kiln::onnx_test
