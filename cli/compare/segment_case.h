// One call of one segment, answered by a plan and by the interpreter: where do they differ, and which step is the first
// to blame.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vm-worker/dispatch/linked_plan.h"

namespace kiln::cli {

struct SegmentCase {
  std::shared_ptr<const LinkedPlan> plan;
  std::vector<Tensor> inputs;  // run-time inputs, contiguous
  std::vector<int64_t> parameters;
};

// The first step of the plan with a value beyond tolerance. Steps before it agree wherever their values can be told
// apart from what the interpreter makes.
struct StepDifference {
  size_t step = 0;
  int32_t node = -1;   // of the segment's body: the one whose value differs
  std::string detail;  // element, both values
};

struct CaseDifference {
  std::string detail;      // "output 0: element 5 is 1.5, the interpreter gave 0.25"
  bool undecided = false;  // only behind a decision on inexact floats: neither right nor wrong
  std::optional<StepDifference> step;
};

// Nothing when the plan's answer is the interpreter's, within the plan's numeric mode. Errors are the interpreter's
// (bad inputs).
Result<std::optional<CaseDifference>> CompareCase(const SegmentCase& call);

}  // namespace kiln::cli
