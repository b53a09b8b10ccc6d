// Text programs with expected values (tests/programs/*.kiln): what a sentence can say about an op, as a runnable file.
//
//   program "name" { … }                       // common/bytecode/program_text.h
//   run "what it shows" {
//     input %x : f32[2] = [1.0, 2.0]            // every input of the entry function
//     output %y : f32[2] = [2.0, 4.0]           // every output, in order; bit for bit, except that NaNs are equal
//     output %z : f32[2] within 1e-5 = [0.5, 0.25]   // |actual - expected| <= 1e-5 * max(1, |expected|)
//   }
//   run "an index past the end" {
//     input %x : f32[2] = [1.0, 2.0]
//     error out_of_range "index 7"              // the run fails with this code, and its message contains the text
//   }
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytecode/program.h"

namespace kiln::testing {

struct ExpectedOutput {
  Tensor tensor;
  double tolerance = 0;  // 0: exact
};

struct ExpectedError {
  std::string code;  // ErrorCodeName
  std::string part;  // of the message
};

struct ProgramRun {
  std::string name;
  std::vector<Tensor> inputs;           // in the order of the entry function
  std::vector<ExpectedOutput> outputs;  // empty when an error is expected
  std::optional<ExpectedError> error;
};

struct ProgramFile {
  Program program;
  std::vector<ProgramRun> runs;
};

// Malformed errors name line and column.
Result<ProgramFile> ParseProgramFile(std::string_view text);
Result<ProgramFile> ReadProgramFile(const std::string& path);
// Paths of the *.kiln files under a folder, sorted.
std::vector<std::string> ProgramFilesIn(const std::string& folder);

// "" if `actual` is what is expected, else dtype, shape or the first element that differs. Any strides.
std::string DifferenceOf(const TensorRef& expected, const TensorRef& actual, double tolerance);

}  // namespace kiln::testing
