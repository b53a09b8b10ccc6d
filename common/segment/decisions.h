// Which outputs of a segment may jump: those behind a decision (ArgMax, the indices of TopK, a comparison, rounding,
// Cast to integer…; common/ops/jumps.h) whose input is the result of float arithmetic. Two correct plans may differ
// there where the input lies on an edge.
#pragma once

#include <vector>

#include "common/segment/segment.h"

namespace kiln {

// Per output of the segment. Inputs, weights and what views and copies make of them are the same in every plan; what
// arithmetic makes of floats is not.
std::vector<bool> OutputsBehindDecisions(const Segment& segment);

}  // namespace kiln
