// Runs a plan instance as the answer to a segment's entry: inputs placed as the guard wants them, outputs and
// temporaries from the interpreter's memory.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "vm-worker/dispatch/plan_instance.h"
#include "vm-worker/interp/segment_hook.h"

namespace kiln {

// Tables that are kept from call to call, so that a steady call allocates nothing.
struct SegmentCallTables {
  std::vector<TensorRef> inputs;
  std::vector<void*> outputs;
};

struct SegmentCallResult {
  int64_t reference_ns = 0;   // time in reference steps
  uint32_t input_copies = 0;  // inputs that were not contiguous or not aligned as the guard demands
};

// Fills entry.outputs. ResourceExhausted, and whatever a reference step refuses (an index out of range).
Result<SegmentCallResult> RunOnEntry(PlanInstance& instance, const SegmentEntry& entry, SegmentCallTables& tables,
                                     StepTiming* timing = nullptr, StepWatcher* watcher = nullptr,
                                     KernelPool* pool = nullptr);

// Runs a prepack recipe's program in the interpreter; the RecipeRunner of production.
Result<Tensor> InterpretRecipe(const Program& program, std::span<const TensorRef> inputs);

}  // namespace kiln
