// Loop nests: element-wise chains, reductions, softmax, normalisations, copies (ir::LoopNestSpec).
#pragma once

#include "compile-service/codegen/llvm/kernel_frame.h"

namespace kiln::codegen {

// Emits the body of `frame`. Precondition: the spec passed ir::VerifySpec.
//
// Two shapes, by what the stages share:
//  rows (reduce_inner): for each outer point, every stage runs over the whole row; reductions keep several vector
//  accumulators and
//    end in one value per row.
//  columns: for each outer point and block of inner positions, all stages run for the block; reductions keep one vector
//  per
//    position. A flat chain is the columns shape with [begin, end) as its inner positions.
// Values that do not change in a loop are emitted in front of it.
void EmitLoopNest(KernelFrame& frame, const ir::LoopNestSpec& spec);

}  // namespace kiln::codegen
