// Compares plans of a program's segments with the interpreter, over shapes and targets.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/bytecode/program.h"
#include "tests/compile-service/lower/run_lowered.h"

namespace kiln::testing {

// The only segment of a text program; the test fails when there is none or more than one.
Segment SegmentOf(std::string_view text);

struct CheckOptions {
  std::vector<std::vector<int64_t>> shapes;  // values of the segment's symbols that callers give, in canonical order
  std::vector<Target> targets = {Target::kX86V4, Target::kX86V3};
  NumericMode mode = NumericMode::kDefault;
  WeightForm form{};    // of weights in plans
  bool exact = true;    // exact plans too, not only the generic ones
  bool ranges = false;  // range plans around the first shape as well, at every shape that they admit
  double tolerance = 2e-4;
  float input_scale = 1.0f;                  // inputs are uniform in [-scale, scale]
  bool accept_unsupported = false;           // lowering may answer Unsupported
  std::vector<TensorRef> weights;            // empty: random ones
  std::function<SpecRunner(Target)> runner;  // empty: the naive one
};

// Lowers the segment generically (hints: the first shape) and runs it at every shape its guard admits; lowers it
// exactly for every shape. Reports mismatches as test failures. Returns the generic plan for the first target, for
// further questions.
lower::LoweredSegment CheckSegment(const Segment& segment, const CheckOptions& options);

}  // namespace kiln::testing
