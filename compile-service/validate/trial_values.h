// Values that kernels are tried and timed with.
#pragma once

#include <random>

#include "compile-service/validate/pointer_extents.h"

namespace kiln {

// Which special floats are mixed in: zeros, NaNs, and what is said here.
struct SpecialValues {
  double largest = 0;    // numbers of this size; 0: no special values at all, and positions stay inside their tables
  bool extremes = true;  // infinities and denormals
};

// Fills extent.elements of `data`: floats of size 1 (weights of a recurrence: of extent.size), bytes of any value,
// other integers small; zeros where the kernel counts on them.
void FillRandom(const PointerExtent& extent, void* data, std::mt19937_64& random, const SpecialValues& special);

}  // namespace kiln
