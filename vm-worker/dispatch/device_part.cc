#include "vm-worker/dispatch/device_part.h"

#include "vm-worker/dispatch/linked_plan.h"

namespace kiln {
namespace {

// Contents of one plan's kernels' arguments must fit what the images say of them.
Status CheckKernels(const Plan& plan, const DeviceKernels& kernels) {
  if (kernels.size() != plan.kernels.size())
    return Fail(ErrorCode::kInternal, "a plan of " + std::to_string(plan.kernels.size()) + " kernels, of which " +
                                          std::to_string(kernels.size()) + " are loaded");
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const auto* step = std::get_if<KernelStep>(&plan.steps[s].step);
    if (step == nullptr) continue;
    const DeviceKernel& kernel = kernels[static_cast<size_t>(step->kernel)];
    if (step->pointers.size() != kernel.pointers || step->dims.size() != kernel.dims)
      return Fail(ErrorCode::kIntegrityFailure,
                  "plan step " + std::to_string(s) + " gives its kernel " + std::to_string(step->pointers.size()) +
                      " pointers and " + std::to_string(step->dims.size()) + " dims; the kernel takes " +
                      std::to_string(kernel.pointers) + " and " + std::to_string(kernel.dims));
    if (!step->scratch_bytes.is_const() || step->scratch_bytes.value() != 0)
      return Fail(ErrorCode::kIntegrityFailure,
                  "plan step " + std::to_string(s) + " wants scratch, which a device's kernel has none of");
  }
  return {};
}

Digest WeightKey(const TensorRef& weight) {
  FieldHasher hasher("kiln.device_weight.v1");
  hasher.U64(reinterpret_cast<uintptr_t>(weight.data)).U64(static_cast<uint64_t>(weight.bytes()));
  return hasher.Finish();
}

}  // namespace

StepReads ReadsOf(const Plan& plan, bool of_kernels) {
  StepReads reads;
  reads.recipes.assign(plan.recipes.size(), false);
  const auto add = [&](int32_t index) {
    if (index < 0) return;
    const PlanValue& value = plan.values[static_cast<size_t>(index)];
    if (value.storage != StorageKind::kWeight && value.storage != StorageKind::kPrepacked) return;
    std::vector<bool>& list = value.storage == StorageKind::kWeight ? reads.weights : reads.recipes;
    const auto at = static_cast<size_t>(value.index);
    if (at >= list.size()) list.resize(at + 1, false);
    list[at] = true;
  };
  for (const PlanStep& step : plan.steps) {
    const auto* kernel = std::get_if<KernelStep>(&step.step);
    if ((kernel != nullptr) != of_kernels) continue;
    for (int32_t value : kernel != nullptr ? kernel->pointers : std::get<ReferenceStep>(step.step).inputs) add(value);
  }
  return reads;
}

Result<std::shared_ptr<const DevicePart>> PlaceOnDevice(const Plan& plan, std::shared_ptr<const DeviceKernels> kernels,
                                                        std::span<const TensorRef> weights, PackedWeights& packer,
                                                        DeviceWeights& copies, const std::shared_ptr<const void>& owner,
                                                        WithoutRoom without_room,
                                                        std::vector<std::shared_ptr<const Tensor>>& on_host) {
  RETURN_IF_ERROR(CheckKernels(plan, *kernels));
  auto part = std::make_shared<DevicePart>();
  part->kernels = std::move(kernels);
  StepReads read = ReadsOf(plan, true);
  const StepReads by_host = ReadsOf(plan, false);
  read.weights.resize(weights.size(), false);
  for (size_t i = 0; i < weights.size(); ++i) {
    part->weights.emplace_back();
    if (!read.weights[i] || weights[i].bytes() == 0) continue;
    ASSIGN_OR_RETURN(
        part->weights.back(),
        copies.Get(WeightKey(weights[i]), owner, MemoryUse::kWeights, [&]() -> Result<DeviceWeights::Contents> {
          return DeviceWeights::Contents{weights[i].data, weights[i].bytes(), nullptr};
        }));
  }
  for (size_t i = 0; i < plan.recipes.size(); ++i) {
    part->packed.emplace_back();
    on_host.emplace_back();
    part->packed_bytes.push_back(0);
    if (by_host.recipes[i]) {
      ASSIGN_OR_RETURN(PackedWeights::Tensors made, packer.Pack({&plan.recipes[i], 1}, weights, owner, without_room));
      on_host.back() = std::move(made.front());
      part->packed_bytes.back() = on_host.back()->ref.bytes();
    }
    if (!read.recipes[i]) continue;
    ASSIGN_OR_RETURN(const Digest key, PackedWeights::KeyOf(plan.recipes[i], weights));
    const auto make = [&]() -> Result<DeviceWeights::Contents> {
      std::shared_ptr<const Tensor> made = on_host.back();
      if (made == nullptr) {
        ASSIGN_OR_RETURN(made, packer.MakeAlone(plan.recipes[i], weights, without_room));
      }
      return DeviceWeights::Contents{made->ref.data, made->ref.bytes(), made};
    };
    ASSIGN_OR_RETURN(part->packed.back(), copies.Get(key, owner, MemoryUse::kPackedWeights, make));
    part->packed_bytes.back() = part->packed.back()->bytes();
  }
  return part;
}

}  // namespace kiln
