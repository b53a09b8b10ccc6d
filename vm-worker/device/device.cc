#include "vm-worker/device/device.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "vm-worker/device/device_lane.h"

namespace kiln {
namespace {

constexpr int64_t kBudgetFifths = 4;  // of what is free, unless a number is given
thread_local uint64_t entered = 0;    // CudaDevice::id_ of the device whose context is this thread's
std::atomic<uint64_t> devices{0};

Result<DeviceFacts> FactsOf(const CudaDriver& driver, int ordinal, cuda::DeviceHandle& handle, DeviceState& state) {
  state = DeviceState::kBroken;
  const auto check = [&driver](cuda::Code code, const char* call) -> Status {
    if (code == cuda::kSuccess) return {};
    return Fail(ErrorCode::kTargetMismatch, std::string(call) + ": " + driver.ErrorText(code));
  };
  int count = 0;
  RETURN_IF_ERROR(check(driver.DeviceGetCount(&count), "cuDeviceGetCount"));
  if (count == 0) {
    state = DeviceState::kNoDevice;
    return Fail(ErrorCode::kTargetMismatch, "the CUDA driver sees no device");
  }
  if (ordinal < 0 || ordinal >= count) {
    state = DeviceState::kBadOrdinal;
    return Fail(ErrorCode::kTargetMismatch, "there is no device cuda:" + std::to_string(ordinal) +
                                                "; the driver sees " + std::to_string(count) + ", counted from 0");
  }
  DeviceFacts facts;
  facts.ordinal = ordinal;
  facts.driver_version = driver.version;
  RETURN_IF_ERROR(check(driver.DeviceGet(&handle, ordinal), "cuDeviceGet"));
  char name[256] = {};
  RETURN_IF_ERROR(check(driver.DeviceGetName(name, sizeof(name) - 1, handle), "cuDeviceGetName"));
  facts.name = name;
  const auto attribute = [&](int which, int& value) {
    return check(driver.DeviceGetAttribute(&value, which, handle), "cuDeviceGetAttribute");
  };
  int shared = 0;
  RETURN_IF_ERROR(attribute(cuda::kAttributeCapabilityMajor, facts.major));
  RETURN_IF_ERROR(attribute(cuda::kAttributeCapabilityMinor, facts.minor));
  RETURN_IF_ERROR(attribute(cuda::kAttributeSharedOptIn, shared));
  facts.shared_bytes_per_block = shared;
  facts.targets = DeviceTargets(facts.major, facts.minor);
  if (facts.targets.empty()) {
    state = DeviceState::kNoTarget;
    return Fail(ErrorCode::kTargetMismatch, facts.name + " has compute capability " + std::to_string(facts.major) +
                                                "." + std::to_string(facts.minor) + ", which no kernels are made for");
  }
  return facts;
}

}  // namespace

DeviceBlock& DeviceBlock::operator=(DeviceBlock&& other) noexcept {
  if (this == &other) return *this;
  End();
  device_ = std::exchange(other.device_, nullptr);
  address_ = std::exchange(other.address_, 0);
  charge_ = std::move(other.charge_);
  return *this;
}

void DeviceBlock::End() {
  if (device_ != nullptr && !device_->lost() && device_->Enter().has_value())
    (void)device_->Check(device_->driver().MemFree(address_), "cuMemFree");
  device_ = nullptr;
  address_ = 0;
  charge_ = {};
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::Open(const Options& options, DeviceState& state) {
  ASSIGN_OR_RETURN(std::unique_ptr<const CudaDriver> driver, CudaDriver::Open(options.library, state));
  cuda::DeviceHandle handle = 0;
  ASSIGN_OR_RETURN(DeviceFacts facts, FactsOf(*driver, options.ordinal, handle, state));
  const auto refused = [&](cuda::Code code, const char* call) {
    return Fail(ErrorCode::kTargetMismatch, "cuda:" + std::to_string(options.ordinal) + " cannot be opened: " + call +
                                                ": " + driver->ErrorText(code));
  };
  cuda::ContextHandle context = nullptr;
  if (const cuda::Code code = driver->DevicePrimaryCtxRetain(&context, handle); code != cuda::kSuccess) {
    state = DeviceState::kBroken;
    return refused(code, "cuDevicePrimaryCtxRetain");
  }
  size_t free = 0, total = 0;
  cuda::Code code = driver->CtxSetCurrent(context);
  if (code == cuda::kSuccess) code = driver->MemGetInfo(&free, &total);
  if (code != cuda::kSuccess) {
    state = DeviceState::kBroken;
    return refused(code, "cuMemGetInfo");
  }
  facts.free_bytes = static_cast<int64_t>(free);
  facts.memory_bytes = static_cast<int64_t>(total);
  const int64_t budget = options.memory_bytes != 0 ? options.memory_bytes : facts.free_bytes / 5 * kBudgetFifths;
  std::unique_ptr<CudaDevice> device(new CudaDevice(std::move(driver), std::move(facts), options, budget));
  device->handle_ = handle;
  device->context_ = context;
  device->id_ = ++devices;
  auto lane = DeviceLane::Open(*device);
  if (!lane.has_value()) {
    state = DeviceState::kBroken;
    return Fail(ErrorCode::kTargetMismatch, lane.error().message);
  }
  device->upload_lane_ = std::move(*lane);
  state = DeviceState::kReady;
  return device;
}

CudaDevice::CudaDevice(std::unique_ptr<const CudaDriver> driver, DeviceFacts facts, const Options& options,
                       int64_t budget_bytes)
    : driver_(std::move(driver)),
      facts_(std::move(facts)),
      options_(options),
      budget_(budget_bytes, "the device's memory", "--device-memory") {}

CudaDevice::~CudaDevice() {
  upload_lane_.reset();
  if (!lost()) driver_->DevicePrimaryCtxRelease(handle_);
}

std::string CudaDevice::Text() const {
  std::string targets;
  for (Target target : facts_.targets) targets += (targets.empty() ? "" : ", ") + std::string(InfoOf(target).name);
  return "cuda:" + std::to_string(facts_.ordinal) + ", " + facts_.name + ", compute capability " +
         std::to_string(facts_.major) + "." + std::to_string(facts_.minor) + " (" + targets + "), driver CUDA " +
         std::to_string(facts_.driver_version / 1000) + "." + std::to_string(facts_.driver_version % 1000 / 10);
}

DeviceLoss CudaDevice::loss() const {
  std::lock_guard lock(mutex_);
  return loss_;
}

Status CudaDevice::Enter() {
  if (entered == id_) return {};
  RETURN_IF_ERROR(Check(driver_->CtxSetCurrent(context_), "cuCtxSetCurrent"));
  entered = id_;
  return {};
}

Result<DeviceBlock> CudaDevice::Allocate(MemoryUse use, int64_t bytes, WithoutRoom without_room) {
  if (lost()) return FailLost();
  RETURN_IF_ERROR(Enter());
  DeviceBlock block;
  ASSIGN_OR_RETURN(block.charge_, MemoryCharge::Take(&budget_, use, bytes, without_room));
  counters_.allocations.fetch_add(1, std::memory_order_relaxed);
  RETURN_IF_ERROR(
      Check(driver_->MemAlloc(&block.address_, static_cast<size_t>(std::max<int64_t>(bytes, 1))), "cuMemAlloc"));
  block.device_ = this;
  return block;
}

Status CudaDevice::Upload(cuda::Pointer to, const void* from, int64_t bytes) {
  std::lock_guard lock(upload_mutex_);
  if (lost()) return FailLost();
  RETURN_IF_ERROR(Enter());
  RETURN_IF_ERROR(upload_lane_->Upload(to, from, bytes));
  return upload_lane_->Wait(0);
}

Status CudaDevice::Check(cuda::Code code, const char* call) {
  if (code == cuda::kSuccess) return {};
  const std::string text = std::string(call) + ": " + driver_->ErrorText(code);
  switch (ScopeOf(code)) {
    case DriverErrorScope::kCall:
      return Fail(ErrorCode::kInternal, "the device refuses the call: " + text);
    case DriverErrorScope::kMemory:
      return Fail(ErrorCode::kResourceExhausted, "the device has no memory for it: " + text);
    case DriverErrorScope::kKernel:
      Lose(text, true);
      return Fail(ErrorCode::kIntegrityFailure, "a kernel faulted on the device: " + text);
    case DriverErrorScope::kDevice:
      Lose(text, false);
      return FailLost();
  }
  return {};
}

void CudaDevice::Lose(std::string text, bool by_kernel) {
  std::lock_guard lock(mutex_);
  if (lost()) return;
  loss_ = {std::move(text), by_kernel, {}};
  for (const bool unproven : {true, false}) {
    for (DeviceLane* lane : lanes_) {
      std::lock_guard running(lane->running_mutex_);
      if (lane->running_ && lane->running_->unproven == unproven &&
          std::ranges::count(loss_.suspects, lane->running_->plan) == 0)
        loss_.suspects.push_back(lane->running_->plan);
    }
    if (!loss_.suspects.empty()) break;
  }
  lost_.store(true, std::memory_order_release);
  spdlog::error("device cuda:{} is lost to this process, which goes on without it: {}", facts_.ordinal, loss_.text);
}

std::unexpected<Error> CudaDevice::FailLost() const {
  return Fail(ErrorCode::kUnavailable, "the device is lost to this process: " + loss().text);
}

void CudaDevice::Join(DeviceLane* lane) {
  std::lock_guard lock(mutex_);
  lanes_.insert(lane);
}

void CudaDevice::Part(DeviceLane* lane) {
  std::lock_guard lock(mutex_);
  lanes_.erase(lane);
}

}  // namespace kiln
