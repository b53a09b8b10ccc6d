// Contraction: matrix multiplication and convolution (implicit gemm) with an epilogue, by register tiles.
//
// Each item of the range is one tile of one panel of one batch element; the order lets all row tiles pass over a panel
// while it is in the cache. Tiles at the ends of m and n compute with repeated rows and zero columns, and store only
// what exists.
#pragma once

#include "compile-service/codegen/llvm/kernel_frame.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen {

// Builds the body of `frame`. The spec has passed VerifySpec.
void EmitContraction(KernelFrame& frame, const ir::ContractionSpec& spec);

}  // namespace kiln::codegen
