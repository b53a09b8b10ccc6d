// PlanRun: a whole plan on given values, step by step as it is written, each of its storages between guard pages. A
// second reading of plans beside the worker's, which packs temporaries and runs what requests wait for.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/artifact/plan.h"
#include "common/native/code_mapping.h"
#include "common/native/guarded_memory.h"

namespace kiln {

// What a worker may choose, and a plan has to bear.
struct PlanRunForm {
  bool in_place = false;   // buffers take the places that PlanBuffer::in_place_of offers
  bool in_halves = false;  // a kernel's range is run in two parts
};

// Not thread-safe. What it is made of outlives it.
class PlanRun {
 public:
  // `plan` is verified (VerifyPlan) and its guard admits `symbols`; `inputs` and `weights` are contiguous and as the
  // segment declares. Runs the prepack recipes and takes all memory, at most bytes_max. IntegrityFailure: a value of
  // the plan lies outside of its storage, or an output is not the segment's; ResourceExhausted; what a recipe refuses.
  static Result<std::unique_ptr<PlanRun>> Prepare(const Plan& plan, const Segment& segment, const CodeMapping& code,
                                                  std::span<const int64_t> symbols, std::span<const TensorRef> inputs,
                                                  std::span<const TensorRef> weights, PlanRunForm form,
                                                  int64_t bytes_max);

  // Runs generated code: only in a process that may die (RunContained). IntegrityFailure: a kernel wrote before the
  // first element of a storage; otherwise what reference steps refuse. Once.
  Status Run();
  // In memory that is shared with forked children.
  std::span<const TensorRef> outputs() const { return outputs_; }

 private:
  PlanRun(const Plan& plan, const Segment& segment, const CodeMapping& code, std::span<const int64_t> symbols,
          std::span<const TensorRef> inputs, std::span<const TensorRef> weights, PlanRunForm form, int64_t bytes_max)
      : plan_(plan),
        segment_(segment),
        code_(code),
        symbols_(symbols),
        inputs_(inputs),
        weights_(weights),
        form_(form),
        bytes_left_(bytes_max) {}
  struct Storage {
    void* data;
    int64_t bytes;
  };

  Result<GuardedMemory*> Take(int64_t bytes, GuardedSharing sharing);
  Result<int64_t> Value(Dim dim) const { return plan_.symbols.Evaluate(dim, symbols_); }
  Status Prepack();
  Status TakeBuffers();
  Status TakeOutputs();
  Status FindViews();
  Storage StorageOf(const PlanValue& value) const;
  Result<TensorRef> View(size_t index) const;
  Status RunKernel(const KernelStep& step, void* scratch) const;
  Status RunReference(const ReferenceStep& step) const;
  Status CheckFronts(size_t step) const;

  const Plan& plan_;
  const Segment& segment_;
  const CodeMapping& code_;
  const std::span<const int64_t> symbols_;
  const std::span<const TensorRef> inputs_, weights_;
  const PlanRunForm form_;
  int64_t bytes_left_;
  std::vector<std::unique_ptr<GuardedMemory>> memory_;
  std::vector<TensorRef> packed_, outputs_, views_;  // per recipe, output, plan value
  std::vector<Storage> buffers_;
  std::vector<Storage> scratch_;  // per step
};

}  // namespace kiln
