// One emitter per kind of kernel. Specs are verified.
#pragma once

#include "compile-service/codegen/cuda/kernel_text.h"

namespace kiln::codegen::cuda {

CudaSource EmitLoopNest(KernelText& text, const ir::LoopNestSpec& spec);
CudaSource EmitContraction(KernelText& text, const ir::ContractionSpec& spec);
CudaSource EmitWindow(KernelText& text, const ir::WindowSpec& spec);
CudaSource EmitRecurrent(KernelText& text, const ir::RecurrentSpec& spec);
CudaSource EmitAttention(KernelText& text, const ir::AttentionSpec& spec);

}  // namespace kiln::codegen::cuda
