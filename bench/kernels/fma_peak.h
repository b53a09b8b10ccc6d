// The multiply-add rate one core reaches at this moment, by vector width: what kernel figures are compared with.
#pragma once

#include "common/artifact/target.h"

namespace kiln::bench {

// Runs independent multiply-adds (or multiplies and adds, on x86-64-v2) for about a millisecond; floating-point
// operations per ns.
double MeasurePeak(Target target);

// CPU time of the calling thread.
double ThreadSeconds();

}  // namespace kiln::bench
