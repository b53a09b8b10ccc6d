#include "vm-worker/device/cuda_driver.h"

#include <dlfcn.h>

namespace kiln {
namespace {

// Of CUDA 12 and later.
using FindEntry = cuda::Code (*)(const char* symbol, void** entry, int version, uint64_t flags, int* found);

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// What keeps a library that was loaded from being a driver with a device.
Status CheckCode(const CudaDriver& driver, cuda::Code code, const std::string& library, DeviceState& state) {
  if (code == cuda::kSuccess) return {};
  if (code == cuda::kStubLibrary) {
    state = DeviceState::kStubLibrary;
    return Fail(ErrorCode::kTargetMismatch,
                library + " is the toolkit's stub for linking; put the driver's own library before it");
  }
  state = code == cuda::kNoDevice ? DeviceState::kNoDevice : DeviceState::kBroken;
  if (code == cuda::kNoDevice)
    return Fail(ErrorCode::kTargetMismatch,
                "the CUDA driver sees no device; in a container, one has to be reserved for it");
  return Fail(ErrorCode::kTargetMismatch, "the CUDA driver cannot be initialised: " + driver.ErrorText(code));
}

}  // namespace

std::string_view DeviceStateText(DeviceState state) {
  switch (state) {
#define KILN_DEVICE_STATE(value, name, text, doc) \
  case DeviceState::k##name:                      \
    return text;
#include "vm-worker/device/device_states.def"
#undef KILN_DEVICE_STATE
  }
  return "unknown";
}

DriverErrorScope ScopeOf(cuda::Code code) {
  switch (code) {
#define KILN_CUDA_ERROR(code, scope) \
  case code:                         \
    return DriverErrorScope::k##scope;
#include "vm-worker/device/driver_errors.def"
#undef KILN_CUDA_ERROR
  }
  return DriverErrorScope::kDevice;
}

std::string CudaDriver::ErrorText(cuda::Code code) const {
  const char *name = nullptr, *text = nullptr;
  if (GetErrorName == nullptr || GetErrorName(code, &name) != cuda::kSuccess || name == nullptr)
    return "CUDA error " + std::to_string(code);
  if (GetErrorString == nullptr || GetErrorString(code, &text) != cuda::kSuccess || text == nullptr) text = "";
  return std::string(name) + " (" + std::to_string(code) + (*text == '\0' ? "" : ": ") + text + ")";
}

Result<std::unique_ptr<const CudaDriver>> CudaDriver::Open(const std::string& library, DeviceState& state) {
  state = DeviceState::kNoDriver;
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return Fail(ErrorCode::kTargetMismatch, "no CUDA driver: " + std::string(why == nullptr ? library : why));
  }
  auto driver = std::make_unique<CudaDriver>();
  driver->DriverGetVersion = reinterpret_cast<cuda::Code (*)(int*)>(dlsym(handle, "cuDriverGetVersion"));
  driver->Init = reinterpret_cast<cuda::Code (*)(unsigned)>(dlsym(handle, "cuInit"));
  const auto find = reinterpret_cast<FindEntry>(dlsym(handle, "cuGetProcAddress_v2"));
  if (driver->DriverGetVersion == nullptr || driver->Init == nullptr)
    return Fail(ErrorCode::kTargetMismatch, library + " is no CUDA driver: it lacks cuInit or cuDriverGetVersion");
  RETURN_IF_ERROR(CheckCode(*driver, driver->DriverGetVersion(&driver->version), library, state));
  if (driver->version < cuda::kCudaApiVersion || find == nullptr) {
    state = DeviceState::kOldDriver;
    return Fail(ErrorCode::kTargetMismatch, "the CUDA driver is of CUDA " + VersionText(driver->version) +
                                                "; kernels need one of CUDA " + VersionText(cuda::kCudaApiVersion) +
                                                " or later");
  }
#define KILN_CUDA_ENTRY(name, symbol, ...)                                                              \
  if (void* entry = nullptr; find(symbol, &entry, cuda::kCudaApiVersion, 0, nullptr) == cuda::kSuccess) \
    driver->name = reinterpret_cast<decltype(driver->name)>(entry);                                     \
  if (driver->name == nullptr)                                                                          \
    return Fail(ErrorCode::kTargetMismatch, "the CUDA driver lacks " symbol "; install a later one");
#include "vm-worker/device/driver_entry_points.def"
#undef KILN_CUDA_ENTRY
  RETURN_IF_ERROR(CheckCode(*driver, driver->Init(0), library, state));
  state = DeviceState::kReady;
  return std::unique_ptr<const CudaDriver>(std::move(driver));
}

}  // namespace kiln
