// Attention: two products with a softmax between them, in one pass over the keys; scores exist for one tile at a time.
//
// Vectors run along queries. A score vector is one key against a vector of queries, so the softmax works lane by lane,
// K and V are read as they lie, one number at a time, and only the queries of a tile are transposed. Per tile of keys
// the largest score so far may grow; sums and results so far are scaled down by what it grew (online softmax).
#pragma once

#include "compile-service/codegen/llvm/kernel_frame.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen {

// Builds the body of `frame`. The spec has passed VerifySpec.
void EmitAttention(KernelFrame& frame, const ir::AttentionSpec& spec);

}  // namespace kiln::codegen
