// Recurrent: LSTM, GRU and RNN over time (ir::RecurrentSpec).
//
// Each item of the range is a tile of rows, taken through all of its time steps. A step's products are micro-kernels
// over one block of units at a time, all gates of the block side by side, so that the gates' arithmetic follows from
// registers.
#pragma once

#include "compile-service/codegen/llvm/kernel_frame.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen {

// Builds the body of `frame`. The spec has passed VerifySpec.
void EmitRecurrent(KernelFrame& frame, const ir::RecurrentSpec& spec);

}  // namespace kiln::codegen
