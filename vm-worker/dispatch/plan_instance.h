// PlanInstance: a linked plan of the processor made ready for one set of symbol values; what a call executes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "vm-worker/dispatch/evaluated_plan.h"
#include "vm-worker/dispatch/kernel_pool.h"
#include "vm-worker/dispatch/linked_plan.h"
#include "vm-worker/dispatch/reference_call.h"

namespace kiln {

// Where time went in one run; filled when asked.
struct StepTiming {
  std::vector<int64_t> step_ns;
};

// Looks at a run between its steps; for compare mode. Not on the path of requests.
class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  // Step `step` has run. `pointers`: where its values lie, in the order of KernelStep::pointers, or inputs then outputs
  // of a ReferenceStep (nullptr where absent).
  virtual void AfterStep(size_t step, std::span<void* const> pointers) = 0;
};

// Memory of one call: `arena` has at least arena_bytes(), 64-byte aligned.
struct PlanCall {
  std::span<const TensorRef> inputs;  // as the guard demands (InputsToCopy)
  std::span<void* const> outputs;     // one per output, 64-byte aligned, output_bytes(i)
  void* arena;
  KernelMemory* memory;             // for reference steps' scratch
  int64_t* reference_ns = nullptr;  // when not null: time in reference steps is added (the rest is kernels)
  StepTiming* timing = nullptr;     // when not null: time per step is added; for explain, costs a clock read a step
  StepWatcher* watcher = nullptr;   // when not null: called after every step
  KernelPool* pool = nullptr;       // when not null: helps with kernels whose estimate is above kPooledOperationsMin
  int64_t deadline_ns = 0;          // when not 0: looked at between steps, on SystemClock
};

// Operations of a kernel step (KernelStep::cost) that make waking helpers worth it, and the least that one part of a
// range should have: about 50 and 10 us of a product, several times that of element-wise work.
inline constexpr int64_t kPooledOperationsMin = 5'000'000;
inline constexpr int64_t kPartOperationsMin = 1'000'000;

// Operations of kernel steps between two looks at the deadline; reference steps are followed by one.
inline constexpr int64_t kLookOperations = 5'000'000;

// Bound to a LinkedPlan, which it keeps alive. Holds per-call tables, hence not thread-safe: one per worker thread.
class PlanInstance {
 public:
  // Evaluates every Dim, packs the arena, verifies that every value lies inside its storage (64-bit arithmetic).
  static Result<std::unique_ptr<PlanInstance>> Instantiate(std::shared_ptr<const LinkedPlan> linked,
                                                           std::span<const int64_t> symbol_values);

  int64_t arena_bytes() const { return arena_bytes_; }
  size_t output_count() const { return outputs_.size(); }
  const TensorRef& output(size_t i) const { return outputs_[i].ref; }  // its shape, without data
  int64_t output_bytes(size_t i) const { return outputs_[i].bytes; }
  const LinkedPlan& linked() const { return *linked_; }
  int64_t bytes() const;  // of this object

  // Runs all steps on the calling thread, and parts of large kernels in the call's pool. Errors: DeadlineExceeded, and
  // what reference steps refuse (an index out of range, say).
  Status Run(const PlanCall& call);

 private:
  PlanInstance() = default;
  struct Address {  // base table entry plus byte offset
    int32_t base;
    int64_t offset;
  };
  struct KernelCallStep {
    KilnKernel entry;
    int32_t first_pointer, pointers;  // in addresses_ and pointer_table_
    int32_t first_dim;                // in dims_
    int64_t range;
    int64_t scratch_bytes;
    int64_t cost;       // operations
    int64_t parts_max;  // 1: runs on the calling thread
  };
  struct ReferenceCallStep {
    int32_t first_value;  // in addresses_: inputs then outputs
    ReferenceCall call;
  };
  struct Step {
    bool is_kernel;
    int32_t index;
  };

  struct Places;  // where bases and arena blocks lie
  static Address AddressOf(const EvaluatedValue& value, const Places& places);
  // `values`: a view per plan value; data is set where the contents are known already.
  Status BuildSteps(std::span<const int64_t> symbol_values, std::span<TensorRef> values,
                    std::span<const Address> addresses);
  Status AddKernel(size_t step, std::span<const int64_t> symbol_values, std::span<const Address> addresses);
  Status AddReference(size_t step, std::span<const int64_t> symbol_values, std::span<TensorRef> values,
                      std::span<const Address> addresses);
  void Watch(size_t step, const PlanCall& call, int64_t start_ns) const;

  std::shared_ptr<const LinkedPlan> linked_;
  std::vector<EvaluatedOutput> outputs_;
  bool is_empty_ = false;  // every output is
  std::vector<Step> steps_;
  std::vector<KernelCallStep> kernels_;
  std::vector<ReferenceCallStep> references_;
  std::vector<Address> addresses_;
  std::vector<void*> pointer_table_;
  std::vector<int64_t> dims_;
  std::vector<void*> bases_;  // inputs, outputs, weights, packed, arena; the constant part is preset
  int64_t arena_bytes_ = 0;
  int64_t scratch_offset_ = 0;  // kernel scratch lies at the end of the arena
};

}  // namespace kiln
