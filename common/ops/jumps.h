// Where an op's result jumps: two inputs that differ by a rounding give outputs that differ by any amount.
#pragma once

#include "common/ops/tensor_op.h"

namespace kiln {

enum class OpJumps : uint8_t {
  kNowhere,
  kEverywhere,  // every output
  kIndices,     // the second output: where the first one's elements were found
  kPositions,   // every output, by inputs after the first, which say where elements are taken from
};

// OpEffects::kDecision is kEverywhere; the others are in op_jumps.def. Poles and edges of a domain (1/x, log, the
// square root of what should be zero) are no jumps: there an error only grows.
OpJumps JumpsOf(TensorOp op);

}  // namespace kiln
