#include "compile-service/jobs/codegen_id_of.h"

#include "compile-service/codegen/cuda/nvrtc_build.h"
#include "compile-service/codegen/llvm/codegen_id.h"

namespace kiln {

Result<Digest> CodegenIdOf(Target target, const std::string& nvrtc) {
  if (!InfoOf(target).is_device()) return codegen::CodegenId();
  if (nvrtc.empty())
    return Fail(ErrorCode::kUnsupported, "this compile service has no NVRTC, which plans for " +
                                             std::string(InfoOf(target).name) +
                                             " need: install CUDA 13's, or start it with --nvrtc PATH");
  return codegen::cuda::CudaCodegenId(target, nvrtc);
}

}  // namespace kiln
