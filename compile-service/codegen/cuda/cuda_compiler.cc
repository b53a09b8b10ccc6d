#include "compile-service/codegen/cuda/cuda_compiler.h"

#include "common/artifact/kernel_blob.h"
#include "common/base/limits.h"
#include "compile-service/codegen/cuda/cuda_source.h"

namespace kiln::codegen::cuda {
namespace {

// Of the processor, for one kernel; one takes a tenth of a second.
constexpr int64_t kCompileMs = 15'000;

}  // namespace

Result<std::unique_ptr<CudaCompiler>> CudaCompiler::Create(Target target, const std::string& nvrtc) {
  if (!InfoOf(target).is_device())
    return Fail(ErrorCode::kUnsupported, "NVRTC makes no kernels for target " + std::string(InfoOf(target).name));
  ASSIGN_OR_RETURN(std::unique_ptr<Nvrtc> opened, Nvrtc::Open(nvrtc));
  return std::unique_ptr<CudaCompiler>(new CudaCompiler(target, std::move(opened)));
}

Result<CudaCode> CudaCompiler::Compile(const ir::KernelSpec& spec) {
  ASSIGN_OR_RETURN(const CudaSource source, EmitCuda(spec));
  ASSIGN_OR_RETURN(const NvrtcOutput output, nvrtc_->Compile(source.text, target_, kCompileMs));
  const DeviceLaunch launch{source.threads,
                            source.items_per_block,
                            0,
                            static_cast<uint32_t>(spec.pointers),
                            static_cast<uint32_t>(spec.dims),
                            nvrtc_->driver_version()};
  CudaCode code{BuildDeviceBlob(target_, launch, output.image), output.resources};
  if (code.bytes.size() > limits::kKernelBlobBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "the kernel has " + std::to_string(code.bytes.size()) +
                                               " bytes of code; the limit is " +
                                               std::to_string(limits::kKernelBlobBytesMax));
  return code;
}

}  // namespace kiln::codegen::cuda
