// Rows in memory become lanes, and lanes become sums: the shuffles behind transposed operands.
#pragma once

#include "compile-service/codegen/llvm/vector_emitter.h"

namespace kiln::codegen {

// Four consecutive f32 of each of `lanes()` rows, as four vectors with one lane per row. `first`: the first row's
// pointer; `stride`: elements between rows.
VectorEmitter::Values LoadFourTransposed(VectorEmitter& emitter, llvm::Value* first, llvm::Value* stride);
// The reverse: vector j becomes element j of every row.
void StoreFourTransposed(VectorEmitter& emitter, const VectorEmitter::Values& four, llvm::Value* first,
                         llvm::Value* stride);
// Lane i is the sum of the lanes of vectors[i modulo their number], a power of two of at most `lanes()`.
llvm::Value* LaneSums(VectorEmitter& emitter, VectorEmitter::Values vectors);

}  // namespace kiln::codegen
