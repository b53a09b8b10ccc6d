// LinkedPlan: a plan bound to one model's weights and to executable code. The step between a fetched artifact and a
// call.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/artifact/plan.h"
#include "common/base/memory_budget.h"
#include "common/native/code_mapping.h"
#include "common/ops/reference_kernel.h"
#include "common/segment/segment.h"
#include "vm-worker/dispatch/device_part.h"

namespace kiln {

// Runs a prepack recipe's program; the interpreter in production.
using RecipeRunner = std::function<Result<Tensor>(const Program& program, std::span<const TensorRef> inputs)>;

// Packed weights of one worker, shared by every plan that packs the same weights of one model the same way, and alive
// as long as one of them is. Thread-safe.
class PackedWeights {
 public:
  // `budget` may be null; outlives everything packed.
  explicit PackedWeights(RecipeRunner runner, MemoryBudget* budget = nullptr)
      : runner_(std::move(runner)), budget_(budget) {}
  MemoryBudget* budget() const { return budget_; }
  using Tensors = std::vector<std::shared_ptr<const Tensor>>;
  // What the recipes of a plan make, in their order. `owner` holds the weights. Addresses name them only while it
  // lives: the packed form of a model that is gone never serves another one whose weights lie where its own did. Null:
  // the weights outlive this object. ResourceExhausted: the budget has no room for all that is missing, or would be
  // tight with it, since runs need room as well; nothing was packed then.
  Result<Tensors> Pack(std::span<const PrepackRecipe> recipes, std::span<const TensorRef> weights,
                       const std::shared_ptr<const void>& owner, WithoutRoom without_room = WithoutRoom::kMakeRoom);
  int64_t bytes() const;  // of everything alive

  // What a recipe makes of weights, by content of the recipe and place of the weights: names it while their owner
  // lives.
  static Result<Digest> KeyOf(const PrepackRecipe& recipe, std::span<const TensorRef> weights);
  // What the recipe makes, for the caller alone; booked as long as it is held.
  Result<std::shared_ptr<const Tensor>> MakeAlone(const PrepackRecipe& recipe, std::span<const TensorRef> weights,
                                                  WithoutRoom without_room);

 private:
  struct Job {
    Digest key;
    std::vector<TensorRef> inputs;
  };
  // Of a recipe's result, charged to `reserved` as far as that goes.
  Result<std::shared_ptr<const Tensor>> RunBooked(const PrepackRecipe& recipe, const Job& job, MemoryCharge& reserved,
                                                  WithoutRoom without_room);
  static Result<Job> JobOf(const PrepackRecipe& recipe, std::span<const TensorRef> weights);
  std::shared_ptr<const Tensor> Find(const Digest& key, const std::shared_ptr<const void>& owner) const;
  // Runs the recipe; what it makes takes its memory out of `reserved`.
  Result<std::shared_ptr<const Tensor>> Make(const PrepackRecipe& recipe, const Job& job,
                                             const std::shared_ptr<const void>& owner, MemoryCharge& reserved,
                                             WithoutRoom without_room);

  RecipeRunner runner_;
  MemoryBudget* budget_;
  mutable std::mutex mutex_;
  struct Entry {
    std::weak_ptr<const Tensor> tensor;
    std::weak_ptr<const void> owner;
  };
  std::unordered_map<Digest, Entry, DigestHash> packed_;
};

// Immutable after Link; shared by the slots and instances that use it. Thread-safe.
class LinkedPlan : public std::enable_shared_from_this<LinkedPlan> {
 public:
  // `code` maps plan.kernels, in order; equal layers share one plan and one mapping. `weights` are the segment's, in
  // canonical order; they and `segment` live as long as the model, which is `owner` (see PackedWeights). Verifies plan
  // against segment, ABI, dtypes and dims of weights. ResourceExhausted: its packed weights, or its tables, have no
  // room; a plan that packs weights has a sibling that does not (WeightForm).
  static Result<std::shared_ptr<const LinkedPlan>> Link(std::shared_ptr<const Plan> plan, PlanKey key,
                                                        const Segment& segment, std::shared_ptr<const CodeMapping> code,
                                                        std::span<const TensorRef> weights, PackedWeights& packer,
                                                        const std::shared_ptr<const void>& owner = nullptr,
                                                        WithoutRoom without_room = WithoutRoom::kMakeRoom);
  // The same on a device: `kernels` are plan.kernels there. What kernels read of weights is copied to the device once
  // for all plans; what reference steps read of packed ones stays on the host as well. ResourceExhausted: the host's
  // memory or the device's has no room for all of it. Blocks for the copies.
  static Result<std::shared_ptr<const LinkedPlan>> LinkOnDevice(std::shared_ptr<const Plan> plan, PlanKey key,
                                                                const Segment& segment,
                                                                std::shared_ptr<const DeviceKernels> kernels,
                                                                std::span<const TensorRef> weights,
                                                                PackedWeights& packer, DeviceWeights& copies,
                                                                const std::shared_ptr<const void>& owner = nullptr,
                                                                WithoutRoom without_room = WithoutRoom::kMakeRoom);

  const Plan& plan() const { return *plan_; }
  const PlanKey& key() const { return key_; }
  const Segment& segment() const { return *segment_; }
  // Whether a device runs it; then it has a device part, and no code of the processor.
  bool on_device() const { return device_ != nullptr; }
  const DevicePart& device() const { return *device_; }
  const CodeMapping& code() const { return *code_; }
  std::span<const TensorRef> weights() const { return weights_; }
  // Whether every symbol that inputs show has one value; so of a segment without symbols, too.
  bool exact() const { return exact_; }
  // On a device only where a reference step reads it (DevicePart::on_host).
  const Tensor& packed(size_t recipe) const { return *packed_[recipe]; }
  int64_t packed_bytes(size_t recipe) const {
    return on_device() ? device_->packed_bytes[recipe] : packed_[recipe]->ref.bytes();
  }
  // Per step: the kernel of a reference step (run == nullptr for kernel steps, views and shape vectors), and its parsed
  // attributes.
  struct Reference {
    ReferenceKernel kernel;
    std::shared_ptr<const void> prepared;
  };
  const Reference& reference(size_t step) const { return references_[step]; }
  int64_t bytes() const;         // code and tables, without weights
  int64_t packed_bytes() const;  // of its packed weights in the host's memory, which others may share

 private:
  LinkedPlan() = default;
  // What is checked and made alike wherever it runs.
  static Result<std::shared_ptr<LinkedPlan>> Begin(std::shared_ptr<const Plan> plan, PlanKey key,
                                                   const Segment& segment, std::span<const TensorRef> weights);
  std::shared_ptr<const Plan> plan_;
  PlanKey key_;
  const Segment* segment_ = nullptr;
  std::shared_ptr<const CodeMapping> code_;  // null on a device
  std::shared_ptr<const DevicePart> device_;
  std::vector<TensorRef> weights_;
  std::vector<std::shared_ptr<const Tensor>> packed_;
  std::vector<Reference> references_;
  bool exact_ = false;
  MemoryCharge charge_;
};

}  // namespace kiln
