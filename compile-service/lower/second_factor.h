// Weights as kernels read them: packed into panels when a plan is linked, or as the model holds them.
#pragma once

#include <cstdint>

#include "compile-service/ir/kernel_spec.h"
#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

// Weights [groups, k, n] as [groups, panels, k, width], zero-padded.
Result<Place> PackPanels(PlanBuilder& builder, ir::GraphValueId weights, int64_t groups, int64_t k, int64_t n,
                         int64_t width);
// The weights of a convolution as the second factor of its product: k x n matrices of the groups, one behind the other.
struct ConvFactor {
  Place place;         // all elements in a row
  int64_t matrix = 0;  // elements of one
  ir::BLayout layout{};
};
// In panels; of bytes in groups of four. `channels`: per kernel position, of which there are `taps`.
Result<ConvFactor> PackedFactor(PlanBuilder& builder, ir::GraphValueId weights, bool bytes, int64_t groups,
                                int64_t taps, int64_t channels, ir::Tile tile);
// In rows of n: reordered weights.
Result<ConvFactor> ReorderedFactor(PlanBuilder& builder, const ir::GraphNode& conv, int64_t groups);

// Weights [groups * out, in, kernel…] of a convolution, as the model holds them, reordered into rows [groups, kernel…,
// in, out] in temporary memory: a step of every call.
Result<Place> ReorderedWeights(PlanBuilder& builder, const ir::GraphNode& conv, int64_t groups);
// Weights [out, in, 1…] where they lie, a column of the product after the other (BLayout::kTransposed). `row_dims`:
// dims that its rows are made of.
Result<Operand> GivenColumns(PlanBuilder& builder, const ir::GraphNode& conv, size_t row_dims);

}  // namespace kiln::lower
