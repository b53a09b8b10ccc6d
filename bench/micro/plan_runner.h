// A one-segment program as a worker runs it, without the dispatch around it: lowered, compiled, linked, instantiated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/artifact/target.h"
#include "common/tensor/tensor.h"
#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "vm-worker/dispatch/plan_instance.h"

namespace kiln::bench {

// Not thread-safe. Inputs and weights are random, of size 1 at most.
class PlanRunner {
 public:
  // `text` has one segment and at most one symbol, whose value is `size`. An exact plan fixes it.
  static Result<std::unique_ptr<PlanRunner>> Create(const std::string& text, int64_t size, bool exact, Target target,
                                                    codegen::KernelCompiler& compiler);
  Status Run();
  // From now on Run calls the plan's costliest kernel alone, on the memory of the last run: for kernels around which a
  // model has no copies, but a plan of its own does.
  Status Isolate();

  // In the order of their first use.
  const float* input(size_t i) const { return inputs_[i].ref.as<float>(); }
  const float* weight(size_t i) const { return weights_[i].ref.as<float>(); }
  std::span<const float> output(size_t i) const { return outputs_[i].values<float>(); }
  size_t steps() const { return plan_->steps.size(); }

 private:
  PlanRunner() = default;

  struct IsolatedKernel {
    KilnKernel entry;
    std::vector<void*> pointers;
    std::vector<int64_t> dims;
    int64_t range;
    std::shared_ptr<Buffer> scratch;
  };

  Segment segment_;
  std::vector<int64_t> values_;  // per symbol
  std::shared_ptr<const Plan> plan_;
  std::vector<Tensor> inputs_, weights_, outputs_;
  std::vector<TensorRef> input_refs_, weight_refs_;
  std::vector<void*> output_pointers_;
  std::shared_ptr<Buffer> arena_;
  std::unique_ptr<PackedWeights> packer_;
  std::unique_ptr<PlanInstance> instance_;
  std::optional<IsolatedKernel> isolated_;
};

}  // namespace kiln::bench
