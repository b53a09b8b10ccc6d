// Which calls a new kernel is tried with: the dims arguments of the plan's own steps, at the observed symbol values and
// at values around them that the guard admits (one more, one less, the smallest, two elsewhere up to twice the
// observed), so that tile edges and tails are met.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/artifact/plan.h"

namespace kiln {

// Per kernel of the plan, at most limits::kTrialsPerKernelMax distinct argument lists.
std::vector<std::vector<std::vector<int64_t>>> TrialDims(const Plan& plan, size_t kernels,
                                                         std::span<const int64_t> hints);

}  // namespace kiln
