// CudaDriver: the entry points of the CUDA driver API, found at run time. Declarations are our own: building needs no
// CUDA, and a machine without a driver is a state, not an error of the loader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace kiln {

enum class DeviceState : uint8_t {
#define KILN_DEVICE_STATE(value, name, text, doc) k##name = value,
#include "vm-worker/device/device_states.def"
#undef KILN_DEVICE_STATE
};
inline constexpr size_t kDeviceStates = 0
#define KILN_DEVICE_STATE(value, name, text, doc) +1
#include "vm-worker/device/device_states.def"
#undef KILN_DEVICE_STATE
    ;
std::string_view DeviceStateText(DeviceState state);

namespace cuda {

using Code = int;  // CUresult
inline constexpr Code kSuccess = 0, kNoDevice = 100, kStubLibrary = 34, kNotReady = 600;
using DeviceHandle = int;
using ContextHandle = struct ContextOfDriver*;
using ModuleHandle = struct ModuleOfDriver*;
using FunctionHandle = struct FunctionOfDriver*;
using StreamHandle = struct StreamOfDriver*;
using Pointer = unsigned long long;  // CUdeviceptr

inline constexpr int kCudaApiVersion = 12000;  // whose variants of the entry points are declared here
inline constexpr unsigned kStreamNonBlocking = 1;
// CUdevice_attribute, CUfunction_attribute.
inline constexpr int kAttributeCapabilityMajor = 75, kAttributeCapabilityMinor = 76, kAttributeSharedOptIn = 97;
inline constexpr int kFunctionThreadsMax = 0, kFunctionDynamicSharedMax = 8;

}  // namespace cuda

// What an error of the driver is about.
enum class DriverErrorScope : uint8_t {
  kCall,    // the call that returned it: nothing else is touched
  kMemory,  // the device has no memory for it
  kKernel,  // a kernel faulted: the context is of no use any more, and the plan that ran is to blame
  kDevice,  // the context is of no use any more, for reasons of its own
};
DriverErrorScope ScopeOf(cuda::Code code);

// Immutable; the library stays loaded until the process ends, as drivers demand.
struct CudaDriver {
#define KILN_CUDA_ENTRY(name, symbol, ...) cuda::Code (*name)(__VA_ARGS__) = nullptr;
  // Parameter types are those of namespace cuda.
  using Code = cuda::Code;
  using DeviceHandle = cuda::DeviceHandle;
  using ContextHandle = cuda::ContextHandle;
  using ModuleHandle = cuda::ModuleHandle;
  using FunctionHandle = cuda::FunctionHandle;
  using StreamHandle = cuda::StreamHandle;
  using Pointer = cuda::Pointer;
#include "vm-worker/device/driver_entry_points.def"
#undef KILN_CUDA_ENTRY
  int version = 0;  // cuDriverGetVersion: 12040 is CUDA 12.4

  // "CUDA_ERROR_ILLEGAL_ADDRESS (700: an illegal memory access was encountered)".
  std::string ErrorText(cuda::Code code) const;

  // Loads `library` and initialises it; `state` says what is missing when this fails. Errors: TargetMismatch, in the
  // words for who runs the worker.
  static Result<std::unique_ptr<const CudaDriver>> Open(const std::string& library, DeviceState& state);
};

}  // namespace kiln
