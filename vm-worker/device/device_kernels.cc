#include "vm-worker/device/device_kernels.h"

#include <algorithm>

#include "common/artifact/kernel_blob.h"

namespace kiln {
namespace {

constexpr const char* kKernelName = "kiln_kernel";  // kernel_abi.h
constexpr uint32_t kSharedWithoutAsking = 48 << 10;

}  // namespace

// One image in the driver.
struct DeviceModules::Module {
  explicit Module(CudaDevice& of) : device(of) {}
  ~Module() {
    if (handle != nullptr && !device.lost() && device.Enter().has_value())
      (void)device.Check(device.driver().ModuleUnload(handle), "cuModuleUnload");
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  CudaDevice& device;
  cuda::ModuleHandle handle = nullptr;
  DeviceKernel kernel;
  int64_t bytes = 0;
  MemoryCharge charge;
};

Result<std::shared_ptr<const DeviceModules::Module>> DeviceModules::LoadOne(const KernelId& id, const Bytes& blob) {
  ASSIGN_OR_RETURN(const KernelBlobView view, ParseKernelBlob(blob));
  if (!view.launch) return Fail(ErrorCode::kTargetMismatch, "kernel " + id.ShortHex() + " is for no device");
  const DeviceLaunch& launch = *view.launch;
  const DeviceFacts& facts = device_.facts();
  if (static_cast<int64_t>(launch.driver_version) > facts.driver_version)
    return Fail(ErrorCode::kTargetMismatch, "kernel " + id.ShortHex() + " needs a driver of version " +
                                                std::to_string(launch.driver_version) + ", this machine has " +
                                                std::to_string(facts.driver_version));
  if (static_cast<int64_t>(launch.shared_bytes) > facts.shared_bytes_per_block)
    return Fail(ErrorCode::kTargetMismatch, "kernel " + id.ShortHex() + " asks for " +
                                                std::to_string(launch.shared_bytes) +
                                                " bytes of shared memory; the device gives a block " +
                                                std::to_string(facts.shared_bytes_per_block));
  const CudaDriver& driver = device_.driver();
  auto module = std::make_shared<Module>(device_);
  module->bytes = static_cast<int64_t>(blob.size());
  ASSIGN_OR_RETURN(module->charge, MemoryCharge::Take(&device_.budget(), MemoryUse::kPlans, module->bytes));
  const auto check = [&](cuda::Code code, const char* call) -> Status {
    Status status = device_.Check(code, call);
    if (status.has_value()) return status;
    // What the driver does not take as it is, it never will.
    const bool refused = status.error().code == ErrorCode::kInternal;
    return Fail(refused ? ErrorCode::kTargetMismatch : status.error().code,
                "kernel " + id.ShortHex() + ": " + status.error().message);
  };
  RETURN_IF_ERROR(
      check(driver.ModuleLoadData(&module->handle, view.bytes.data() + view.entry_offset), "cuModuleLoadData"));
  DeviceKernel& kernel = module->kernel;
  RETURN_IF_ERROR(
      check(driver.ModuleGetFunction(&kernel.function, module->handle, kKernelName), "cuModuleGetFunction"));
  if (launch.shared_bytes > kSharedWithoutAsking)
    RETURN_IF_ERROR(check(driver.FuncSetAttribute(kernel.function, cuda::kFunctionDynamicSharedMax,
                                                  static_cast<int>(launch.shared_bytes)),
                          "cuFuncSetAttribute"));
  int threads = 0;
  RETURN_IF_ERROR(
      check(driver.FuncGetAttribute(&threads, cuda::kFunctionThreadsMax, kernel.function), "cuFuncGetAttribute"));
  if (static_cast<int64_t>(launch.threads) > threads)
    return Fail(ErrorCode::kTargetMismatch, "kernel " + id.ShortHex() + " wants " + std::to_string(launch.threads) +
                                                " threads a block; with its registers the device has room for " +
                                                std::to_string(threads));
  kernel.threads = launch.threads;
  kernel.items_per_block = launch.items_per_block;
  kernel.dynamic_shared = launch.shared_bytes;
  kernel.pointers = launch.pointers;
  kernel.dims = launch.dims;
  return module;
}

Result<std::shared_ptr<const DeviceKernels>> DeviceModules::Load(const KernelImages& images) {
  if (device_.lost()) return device_.FailLost();
  RETURN_IF_ERROR(device_.Enter());
  std::lock_guard lock(mutex_);
  std::erase_if(loaded_, [](const auto& entry) { return entry.second.expired(); });
  auto kernels = std::make_shared<DeviceKernels>();
  for (size_t i = 0; i < images.ids.size(); ++i) {
    std::weak_ptr<const Module>& place = loaded_[images.ids[i]];
    std::shared_ptr<const Module> module = place.lock();
    if (module == nullptr) {
      ASSIGN_OR_RETURN(module, LoadOne(images.ids[i], images.blobs[i]));
      place = module;
    }
    kernels->kernels_.push_back(module->kernel);
    kernels->bytes_ += module->bytes;
    kernels->modules_.push_back(std::move(module));
  }
  return kernels;
}

}  // namespace kiln
