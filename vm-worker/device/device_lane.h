// DeviceLane: what one thread has on a device: a stream, and an arena that all its calls share, one after the other.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "vm-worker/device/device.h"

namespace kiln {

// A kernel that is loaded (DeviceKernels).
struct DeviceKernel {
  cuda::FunctionHandle function = nullptr;
  uint32_t threads = 0;         // per block
  int64_t items_per_block = 1;  // of the range
  uint32_t dynamic_shared = 0;  // bytes
  uint32_t pointers = 0, dims = 0;
};

// Not thread-safe: one thread uses it, though not always the one that opened it.
class DeviceLane {
 public:
  static Result<std::unique_ptr<DeviceLane>> Open(CudaDevice& device);
  ~DeviceLane();
  DeviceLane(const DeviceLane&) = delete;
  DeviceLane& operator=(const DeviceLane&) = delete;

  CudaDevice& device() { return device_; }
  // An arena of at least so many bytes; its contents do not outlive a growth. Allocates only where it has to grow, and
  // only while nothing runs. ResourceExhausted, Unavailable.
  Status Reserve(int64_t bytes);
  cuda::Pointer arena() const { return arena_.address(); }
  int64_t arena_bytes() const { return arena_.bytes(); }

  // A run of `plan` begins. Unavailable: the device is lost, or what an earlier run began and left is still under way.
  // `unproven`: the plan has yet to be trusted, and is the one that is blamed where several run at a fault.
  Status Begin(const Digest& plan, bool unproven);
  // Copies between host memory, which need not be pinned, and the device; only while nothing runs (after Begin, after
  // Wait). From is read when Upload returns; To is written once Wait has returned.
  Status Upload(cuda::Pointer to, const void* from, int64_t bytes);
  Status Download(void* to, cuda::Pointer from, int64_t bytes);
  Status Fill(cuda::Pointer to, uint8_t value, int64_t bytes);
  // [0, range) in as many launches as grids of 2^31-1 blocks need. `args`: the kernel's Args (kernel_abi.h).
  Status Launch(const DeviceKernel& kernel, void* args, int64_t range);
  // Until all of it is done, by asking; DeadlineExceeded at `deadline_ns` (SystemClock; 0: none). What does not end
  // within run_max_ms loses the device.
  Status Wait(int64_t deadline_ns);
  // The run is over. What may still be under way of one that failed uses `keep_alive` (the plan), which is let go of
  // when it is done: nobody waits for it.
  void End(bool failed, std::shared_ptr<const void> keep_alive);

 private:
  friend class CudaDevice;
  explicit DeviceLane(CudaDevice& device) : device_(device) {}
  Result<bool> IsDone();

  CudaDevice& device_;
  cuda::StreamHandle stream_ = nullptr;
  DeviceBlock arena_;
  bool under_way_ = false;            // of an earlier run…
  int64_t left_ns_ = 0;               // …since then…
  std::shared_ptr<const void> kept_;  // …which uses this
  struct Running {
    Digest plan;
    bool unproven;
  };
  std::mutex running_mutex_;
  std::optional<Running> running_;  // for CudaDevice::Lose
};

}  // namespace kiln
