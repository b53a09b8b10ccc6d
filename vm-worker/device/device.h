// CudaDevice: one CUDA device of this process: its facts, its memory within a budget, and what becomes of its errors.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/memory_budget.h"
#include "common/base/result.h"
#include "vm-worker/device/cuda_driver.h"

namespace kiln {

class CudaDevice;
class DeviceLane;

struct DeviceFacts {
  int ordinal = 0;
  std::string name;
  int major = 0, minor = 0;            // compute capability
  int driver_version = 0;              // 12040 is CUDA 12.4
  int64_t memory_bytes = 0;            // of the device
  int64_t free_bytes = 0;              // when it was opened
  int64_t shared_bytes_per_block = 0;  // at most, with the opt-in
  std::vector<Target> targets;         // that it runs, best first
};

// A piece of the device's memory, 256-byte aligned; freed at its end, unless the device is lost.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(DeviceBlock&& other) noexcept { *this = std::move(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept;
  ~DeviceBlock() { End(); }
  cuda::Pointer address() const { return address_; }
  int64_t bytes() const { return charge_.bytes(); }

 private:
  friend class CudaDevice;
  void End();
  CudaDevice* device_ = nullptr;
  cuda::Pointer address_ = 0;
  MemoryCharge charge_;
};

// Why a device is lost.
struct DeviceLoss {
  std::string text;
  bool by_kernel = false;        // a kernel faulted or never ended…
  std::vector<Digest> suspects;  // …of one of these plans, which were running: unproven ones where there are any
};

struct DeviceCounters {
  std::atomic<uint64_t> allocations{0};  // of memory; none in steady state
  std::atomic<uint64_t> calls{0};        // plans' runs that began
  std::atomic<uint64_t> launches{0};
  std::atomic<uint64_t> bytes_in{0}, bytes_out{0};
};

// Thread-safe. Outlives every block, lane, kernel and weight of it.
class CudaDevice {
 public:
  struct Options {
    std::string library = "libcuda.so.1";
    int ordinal = 0;
    int64_t memory_bytes = 0;     // that may be used; 0: four fifths of what is free now
    int64_t run_max_ms = 30'000;  // of one run; then the device is given up
    const Clock* clock = &SystemClock();
  };
  // TargetMismatch says in words for who runs the worker what is missing; `state` says it for metrics.
  static Result<std::unique_ptr<CudaDevice>> Open(const Options& options, DeviceState& state);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceFacts& facts() const { return facts_; }
  const CudaDriver& driver() const { return *driver_; }
  const Options& options() const { return options_; }
  MemoryBudget& budget() { return budget_; }
  DeviceCounters& counters() { return counters_; }
  // "cuda:0, NVIDIA H200, compute capability 9.0 (sm_90, sm_80), driver CUDA 12.4".
  std::string Text() const;

  bool lost() const { return lost_.load(std::memory_order_acquire); }
  // Once it is lost.
  DeviceLoss loss() const;

  // Makes this device's context that of the calling thread; cheap where it is already.
  Status Enter();
  // ResourceExhausted: within the budget, or of the device itself. Nothing waits.
  Result<DeviceBlock> Allocate(MemoryUse use, int64_t bytes, WithoutRoom without_room = WithoutRoom::kMakeRoom);
  // Copies, and returns once the bytes are there. Not on the request path.
  Status Upload(cuda::Pointer to, const void* from, int64_t bytes);

  // What a call of the driver returned. ResourceExhausted, IntegrityFailure (a kernel faulted; the device is lost),
  // Unavailable (the device is lost), Internal (the driver refuses the call).
  Status Check(cuda::Code code, const char* call);
  // Nothing of it is used from here on. The first reason stays.
  void Lose(std::string text, bool by_kernel);
  // Unavailable, with the reason: the device is lost.
  std::unexpected<Error> FailLost() const;

 private:
  friend class DeviceBlock;
  friend class DeviceLane;
  CudaDevice(std::unique_ptr<const CudaDriver> driver, DeviceFacts facts, const Options& options, int64_t budget_bytes);
  void Join(DeviceLane* lane);
  void Part(DeviceLane* lane);

  std::unique_ptr<const CudaDriver> driver_;
  const DeviceFacts facts_;
  const Options options_;
  uint64_t id_ = 0;  // of this process, from 1
  cuda::DeviceHandle handle_ = 0;
  cuda::ContextHandle context_ = nullptr;
  MemoryBudget budget_;
  DeviceCounters counters_;
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;  // guards what follows
  DeviceLoss loss_;
  std::set<DeviceLane*> lanes_;
  std::mutex upload_mutex_;  // guards upload_lane_
  std::unique_ptr<DeviceLane> upload_lane_;
};

}  // namespace kiln
