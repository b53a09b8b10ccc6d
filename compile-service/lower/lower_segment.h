// LowerSegment: from a canonical segment to a plan and the kernel specs it needs. No LLVM, no cache, no threads.
#pragma once

#include <string>
#include <vector>

#include "common/artifact/plan.h"
#include "common/artifact/target.h"
#include "common/base/result.h"
#include "common/segment/segment.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::lower {

// What a plan fixes about one symbol.
struct SymbolChoice {
  enum class Kind : uint8_t {
    kFree,   // whatever the segment declares: generic
    kRange,  // min..max, multiples of divisor
    kExact,  // min
  };
  Kind kind = Kind::kFree;
  int64_t min = 0;
  int64_t max = Interval::kNoBound;
  int64_t divisor = 1;
};

struct LowerRequest {
  const Segment& segment;
  Target target{};
  NumericMode mode = NumericMode::kDefault;
  std::vector<int64_t> hints;         // a likely value per symbol of the segment; -1 for kValueDim symbols
  std::vector<SymbolChoice> symbols;  // per symbol; empty: all free
  // As given: kernels read weights where the model has them, or reordered into temporary memory in every call;
  // nothing is folded into them, and nodes whose kernels need them packed become reference steps.
  WeightForm weights{};
};

struct Coverage {
  int kernel_nodes = 0;     // nodes of the body computed by kernels
  int reference_nodes = 0;  // by reference steps
  int free_nodes = 0;       // views, constants, shape arithmetic, prepacked: no run-time work of their own
  std::vector<std::string> reference_ops;  // one entry per reference step
  std::vector<std::string> fallbacks;      // why groups that kernels should compute are reference steps
};

// `plan.kernels` is empty; KernelStep::kernel indexes `specs`. The caller compiles the specs and fills in the ids.
struct LoweredSegment {
  Plan plan;
  std::vector<ir::KernelSpec> specs;  // each once
  Coverage coverage;
};

// InvalidArgument when hints or choices do not fit the segment; ShapeMismatch when the hints contradict its shape
// rules; Unsupported when a shape cannot be expressed over the symbols. What no kernel can compute becomes reference
// steps, and so do the cheapest groups when there would be more than limits::kPlanKernelsMax kernels.
Result<LoweredSegment> LowerSegment(const LowerRequest& request);

}  // namespace kiln::lower
