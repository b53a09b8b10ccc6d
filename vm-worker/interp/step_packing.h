// Where the temporaries of a static form lie. A signature's first run waits for it, so it is quick first: tight packing
// (arena_packing.h) only where that gains enough.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "vm-worker/interp/arena_packing.h"

namespace kiln {

struct StepPacking {
  std::vector<size_t> offsets;  // per block
  size_t bytes = 0;
  size_t alive_bytes = 0;  // most at one step: no packing needs less
};

// Blocks in the order of the steps that touch them first: taken there, free again after the last. Precondition: bytes
// are whole alignments, steps are below `steps`.
StepPacking PackInStepOrder(std::span<const ArenaBlock> blocks, size_t steps);

}  // namespace kiln
