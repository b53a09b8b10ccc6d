// A clock for what takes nanoseconds.
#pragma once

#include "common/base/clock.h"

namespace kiln {

// Read from the processor's own counter where that runs at one rate, at a third of the cost of the real clock, and from
// the real clock elsewhere. Its rate is measured once, to some 0.05 %: for differences of its own readings.
const Clock& Stopwatch();

}  // namespace kiln
