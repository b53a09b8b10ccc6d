// Calls of a kernel at other sizes than the observed one. A kernel is reused by its key wherever the arithmetic and the
// fixed sizes are the same, also by plans that were exact at other extents: what it does at edges and tails is part of
// what is validated, whatever the plan that came first had.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compile-service/ir/kernel_spec.h"

namespace kiln {

// At most four, and a narrow image of a convolution in Winograd's form: every extent that is an argument, and an
// argument of nothing else, is one less; a multiple of the tile; one more than that; one. Strides stay, so that no call
// has rows that overlap, or needs more memory.
std::vector<std::vector<int64_t>> EdgeTrials(const ir::KernelSpec& spec, std::span<const int64_t> dims, int f32_lanes);

}  // namespace kiln
