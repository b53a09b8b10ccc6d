// Where temporaries lie in one block of the arena, for plans and for static forms.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"

namespace kiln {

struct ArenaBlock {
  int64_t bytes;
  int32_t first_step;
  int32_t last_step;
  bool operator==(const ArenaBlock&) const = default;
};
struct ArenaPacking {
  std::vector<int64_t> offsets;  // multiples of 64
  int64_t bytes = 0;
};

// Most bytes alive at one step, each block in whole cache lines: no packing needs less.
int64_t PeakBytes(std::span<const ArenaBlock> blocks);

// One deterministic greedy function: lowest fitting offset among the blocks alive at the same time, in up to three
// orders, of which the first that comes near PeakBytes, else the best, is taken. LimitExceeded names a size that no
// tensor has.
Result<ArenaPacking> PackArena(std::span<const ArenaBlock> blocks);

}  // namespace kiln
