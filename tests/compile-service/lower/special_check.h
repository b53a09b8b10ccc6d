// Plans against the interpreter on special values (tests/support/special_values.h), by the numeric mode's table: NaN
// where the interpreter has one, the same infinities, zeros of the same sign where ops are element-wise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/artifact/plan.h"
#include "tests/compile-service/lower/compiled_runner.h"
#include "tests/support/special_values.h"

namespace kiln::testing {

struct SpecialCheckOptions {
  Target target{};
  NumericMode mode = NumericMode::kDefault;
  WeightForm form{};             // of weights in the plan
  std::vector<int64_t> symbols;  // of the segment
  std::vector<Tensor> inputs;    // run-time inputs, then weights: what is not filled keeps these values
  std::vector<bool> filled;      // per input
  std::vector<bool> zeros;       // per input: whether integers may be 0; empty: all may
  std::vector<bool> plain;       // per input: whether it has neither NaN, infinities nor denormals; empty: all may
  int rounds = 48;
  uint64_t seed = 1;
  Magnitudes magnitudes = Magnitudes::kAll;
  bool elementwise = false;  // an element of the result follows from one element of each operand
};

enum class SpecialOutcome : uint8_t { kCompared, kNoKernel, kFailed };

// One plan for exactly `symbols`. kNoKernel: lowering leaves a node to a reference step, or cannot. Differences are
// test failures; at most one per call.
SpecialOutcome CheckSpecials(const Segment& segment, const SpecialCheckOptions& options, CompiledRunner& runner);

}  // namespace kiln::testing
