// Values that kernels are tried and timed with.
#pragma once

#include <random>

#include "compile-service/validate/pointer_extents.h"

namespace kiln {

// Fills extent.elements of `data`: floats of size 1 (weights of a recurrence: of extent.size), bytes of any value,
// other integers small; zeros where the kernel counts on them. `special`: some NaN, infinities, denormals and zeros.
void FillRandom(const PointerExtent& extent, void* data, std::mt19937_64& random, bool special);

}  // namespace kiln
