#include "compile-service/codegen/cuda/cuda_source.h"

#include "common/artifact/kernel_blob.h"
#include "compile-service/codegen/cuda/emitters.h"

namespace kiln::codegen::cuda {
namespace {

struct Emit {
  KernelText& text;
  CudaSource operator()(const ir::LoopNestSpec& spec) { return EmitLoopNest(text, spec); }
  CudaSource operator()(const ir::ContractionSpec& spec) { return EmitContraction(text, spec); }
  CudaSource operator()(const ir::WindowSpec& spec) { return EmitWindow(text, spec); }
  CudaSource operator()(const ir::RecurrentSpec& spec) { return EmitRecurrent(text, spec); }
  CudaSource operator()(const ir::AttentionSpec& spec) { return EmitAttention(text, spec); }
};

}  // namespace

Result<CudaSource> EmitCuda(const ir::KernelSpec& spec) {
  RETURN_IF_ERROR(ir::VerifySpec(spec));
  const uint32_t bytes = DeviceParameterBytes(static_cast<uint32_t>(spec.pointers), static_cast<uint32_t>(spec.dims));
  if (bytes > kDeviceParameterBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "the kernel's " + std::to_string(spec.pointers) + " pointers and " +
                                               std::to_string(spec.dims) + " dims take " + std::to_string(bytes) +
                                               " bytes; a launch on a GPU has " +
                                               std::to_string(kDeviceParameterBytesMax) + "; cut the segment");
  KernelText text(spec);
  return std::visit(Emit{text}, spec.kernel);
}

}  // namespace kiln::codegen::cuda
