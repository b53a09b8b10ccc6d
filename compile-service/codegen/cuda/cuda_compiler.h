// CudaCompiler: KernelSpec in, a device's kernel out: CUDA C++ of our own, compiled by NVRTC.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/artifact/target.h"
#include "compile-service/codegen/cuda/nvrtc.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen::cuda {

struct CudaCode {
  std::vector<uint8_t> bytes;  // kernel_blob.h
  KernelResources resources;
};

// Not thread-safe. Runs in compile children only: a crash of the compiler costs one job.
class CudaCompiler {
 public:
  // `nvrtc`: the library's path. Unsupported for a target that is no GPU.
  static Result<std::unique_ptr<CudaCompiler>> Create(Target target, const std::string& nvrtc);

  Result<CudaCode> Compile(const ir::KernelSpec& spec);

 private:
  CudaCompiler(Target target, std::unique_ptr<Nvrtc> nvrtc) : target_(target), nvrtc_(std::move(nvrtc)) {}
  const Target target_;
  const std::unique_ptr<Nvrtc> nvrtc_;
};

}  // namespace kiln::codegen::cuda
