// DevicePart: what a linked plan has on a device.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/artifact/plan.h"
#include "common/tensor/tensor.h"
#include "vm-worker/device/device_kernels.h"
#include "vm-worker/device/device_weights.h"

namespace kiln {

// The first reason why the device refused to run a plan, from the thread that met it to the control thread.
// Thread-safe.
class DeviceRefusal {
 public:
  void Note(const std::string& why) {
    std::lock_guard lock(mutex_);
    if (!why_) why_ = why;
    noted_.store(true, std::memory_order_release);
  }
  std::optional<std::string> why() const {
    if (!noted_.load(std::memory_order_acquire)) return std::nullopt;
    std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> noted_{false};
  std::optional<std::string> why_;
};

// Which weights and recipes of a plan its steps read, by what runs the step.
struct StepReads {
  std::vector<bool> weights, recipes;
};
StepReads ReadsOf(const Plan& plan, bool of_kernels);

// Immutable but for `refusal`; shared by the instances of the plan.
struct DevicePart {
  std::shared_ptr<const DeviceKernels> kernels;                     // as plan.kernels
  std::vector<std::shared_ptr<const DeviceBlock>> weights, packed;  // null where no kernel reads them
  std::vector<int64_t> packed_bytes;                                // per recipe
  const std::unique_ptr<DeviceRefusal> refusal = std::make_unique<DeviceRefusal>();
};

// What a plan's kernels read, on the device; `on_host`: per recipe, what reference steps read, which stays there too.
class PackedWeights;
Result<std::shared_ptr<const DevicePart>> PlaceOnDevice(const Plan& plan, std::shared_ptr<const DeviceKernels> kernels,
                                                        std::span<const TensorRef> weights, PackedWeights& packer,
                                                        DeviceWeights& copies, const std::shared_ptr<const void>& owner,
                                                        WithoutRoom without_room,
                                                        std::vector<std::shared_ptr<const Tensor>>& on_host);

}  // namespace kiln
