// Runs models on their test vectors and reports what passed.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cli/onnx_test/program_runner.h"
#include "cli/onnx_test/vector_case.h"
#include "common/numeric/difference.h"

namespace kiln::onnx_test {

enum class Outcome : uint8_t { kPassed, kFailed, kSkipped };
std::string_view OutcomeName(Outcome outcome);

struct CaseResult {
  std::string name;  // of the case
  std::string mode;  // of the runner
  Outcome outcome;
  std::string detail;  // the first failure (data set, output, element), or why it was skipped
};

// What vectors of another runtime are held to: |actual - expected| <= absolute + relative * |expected|.
struct Tolerance {
  double relative = 1e-3;
  double absolute = 1e-5;
  double half = 1e-2;  // both bounds for f16 and bf16, where it is larger

  ErrorBound For(DType dtype) const;
};

struct TestOptions {
  // Every input dim becomes a symbol; results must also be bit-identical to those of the model as declared.
  bool dynamic = false;
  Tolerance tolerance;
};

// One case in one mode: imports the model, loads it, runs every data set. Skipped where import or load answer
// Unsupported, and where the model draws random numbers: then only types and shapes of its outputs are compared.
CaseResult RunCase(const VectorCase& test, const RunnerMode& mode, const TestOptions& options);

struct Summary {
  size_t passed = 0;
  size_t failed = 0;
  size_t skipped = 0;
  void Count(Outcome outcome);
};

// All cases in all modes, in order; `report` gets each result as it comes.
Summary RunCases(const std::vector<VectorCase>& cases, const std::vector<RunnerMode>& modes, const TestOptions& options,
                 const std::function<void(const CaseResult&)>& report);

}  // namespace kiln::onnx_test
