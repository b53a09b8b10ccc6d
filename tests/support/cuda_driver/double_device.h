// A device of the double, and what it counted; kernels written by hand as blobs.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/artifact/kernel_blob.h"
#include "vm-worker/device/device.h"

namespace kiln::testing {

inline constexpr const char* kCudaDouble = KILN_CUDA_DOUBLE_DIR "/libcuda.so.1";

// What the double is like from its next cuInit on.
inline void SetCudaDouble(const std::string& settings) {
  setenv("KILN_CUDA_DOUBLE", settings.c_str(), 1);
}

inline std::unique_ptr<CudaDevice> OpenDouble(const std::string& settings = "", CudaDevice::Options options = {}) {
  SetCudaDouble(settings);
  options.library = kCudaDouble;
  DeviceState state{};
  auto device = CudaDevice::Open(options, state);
  EXPECT_TRUE(device.has_value()) << (device.has_value() ? "" : ToString(device.error()));
  EXPECT_EQ(state, DeviceState::kReady);
  return device.has_value() ? std::move(*device) : nullptr;
}

inline uint64_t DoubleCount(const char* what) {
  static void* const library = dlopen(kCudaDouble, RTLD_NOW | RTLD_LOCAL);
  static const auto count = reinterpret_cast<uint64_t (*)(const char*)>(dlsym(library, "kiln_cuda_double_count"));
  return count(what);
}

// tests/support/cuda_driver/test_kernel.cc, compiled as `name`.
inline std::vector<uint8_t> TestKernel(const std::string& name, Target target = Target::kSm90,
                                       uint32_t driver = 12000) {
  std::ifstream file(KILN_CUDA_DOUBLE_DIR "/kernels/" + name + ".so", std::ios::binary);
  const std::vector<uint8_t> image{std::istreambuf_iterator<char>(file), {}};
  EXPECT_FALSE(image.empty()) << name;
  const bool adds = name == "adds";
  return BuildDeviceBlob(target,
                         {.threads = 64,
                          .items_per_block = 64,
                          .pointers = adds ? 3u : 2u,
                          .dims = adds ? 2u : 1u,
                          .driver_version = driver},
                         image);
}

}  // namespace kiln::testing
