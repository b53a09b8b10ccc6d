// ReferenceCall: a reference step of a plan made ready for one set of symbol values; run on the host wherever the
// plan's kernels run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "vm-worker/dispatch/linked_plan.h"

namespace kiln {

struct ReferenceCall {
  int32_t plan_step;
  std::vector<TensorRef> inputs, outputs;  // data patched per call; null where absent
  std::vector<TensorRef> dense;            // the inputs as the kernel reads them, where it takes no strides; or empty
  std::vector<int64_t> shape;              // ShapeVector's values
};

// `values`: a view per plan value; data is set where the contents are known already, and is set here for what a
// ShapeVector makes, which lives as long as the call. IntegrityFailure: the step does not make what it says.
Result<ReferenceCall> MakeReferenceCall(const LinkedPlan& linked, size_t step, std::span<const int64_t> symbol_values,
                                        std::span<TensorRef> values);

// `pointers`: the data of inputs, then of outputs; null where absent. Errors are the op's, or ResourceExhausted.
Status RunReference(const LinkedPlan& linked, ReferenceCall& call, void* const* pointers, KernelMemory& memory);

}  // namespace kiln
