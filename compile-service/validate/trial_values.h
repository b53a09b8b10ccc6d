// Values that kernels are tried and timed with.
#pragma once

#include <random>

#include "compile-service/validate/pointer_extents.h"

namespace kiln {

// Fills extent.elements of `data`: floats of size 1 (weights of a recurrence: of extent.size), bytes of any value,
// other integers small; zeros where the kernel counts on them. Where `largest` is more than 0, some floats are NaN,
// infinite, denormal, zero or of that size.
void FillRandom(const PointerExtent& extent, void* data, std::mt19937_64& random, double largest);

}  // namespace kiln
