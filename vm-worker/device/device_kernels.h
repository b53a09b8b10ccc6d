// DeviceKernels: the kernels of one plan as a device runs them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "vm-worker/device/device_lane.h"
#include "vm-worker/device/kernel_images.h"

namespace kiln {

// Immutable. Its modules are unloaded with the last plan that shares them: the owner guarantees that nothing of them
// runs then (EpochDomain, DeviceLane::End).
class DeviceKernels {
 public:
  const DeviceKernel& operator[](size_t kernel) const { return kernels_[kernel]; }
  size_t size() const { return kernels_.size(); }
  int64_t bytes() const { return bytes_; }  // of the images

 private:
  friend class DeviceModules;
  std::vector<DeviceKernel> kernels_;
  std::vector<std::shared_ptr<const void>> modules_;
  int64_t bytes_ = 0;
};

// The modules of a device, each loaded once for all plans that name its kernel. Thread-safe.
class DeviceModules {
 public:
  explicit DeviceModules(CudaDevice& device) : device_(device) {}
  // TargetMismatch: the driver is older than a kernel asks for, or does not know the image; ResourceExhausted;
  // IntegrityFailure: the image has no such kernel; Unavailable: the device is lost.
  Result<std::shared_ptr<const DeviceKernels>> Load(const KernelImages& images);

 private:
  struct Module;
  Result<std::shared_ptr<const Module>> LoadOne(const KernelId& id, const Bytes& blob);

  CudaDevice& device_;
  std::mutex mutex_;  // guards loaded_
  std::map<KernelId, std::weak_ptr<const Module>> loaded_;
};

}  // namespace kiln
