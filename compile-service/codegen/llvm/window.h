// Window: depthwise convolution and pooling over channels-last images, vectors along channels.
//
// Each item of the range is one output row. Its columns are computed in blocks, so that weights and overlapping inputs
// are loaded once; blocks at the edges skip the input columns outside the image and the output columns that do not
// exist.
#pragma once

#include "compile-service/codegen/llvm/kernel_frame.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen {

// Builds the body of `frame`. The spec has passed VerifySpec.
void EmitWindow(KernelFrame& frame, const ir::WindowSpec& spec);

}  // namespace kiln::codegen
