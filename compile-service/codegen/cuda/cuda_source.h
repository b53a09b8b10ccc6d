// A kernel as CUDA C++: what NVRTC compiles, and what tests run on the processor (tests/support/cuda).
//
// The text is self-contained: no header, no include directive. Every access to shared memory goes through a macro that
// is a plain access on a device (prelude.h), so that tests can look at each.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen::cuda {

struct CudaSource {
  std::string text;  // one function, kiln_kernel (common/artifact/kernel_abi.h)
  uint32_t threads = 0, items_per_block = 1;
};

inline constexpr uint32_t kBlockThreads = 256;
// What a block's static shared memory may take, on every device.
inline constexpr int64_t kStaticSharedBytes = 48 << 10;

// InvalidArgument for a spec that VerifySpec refuses; LimitExceeded for one with more pointers and dims than a launch
// has room for.
Result<CudaSource> EmitCuda(const ir::KernelSpec& spec);

}  // namespace kiln::codegen::cuda
