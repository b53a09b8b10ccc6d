// The memory that a plan's temporaries need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/artifact/plan.h"
#include "common/base/result.h"
#include "vm-worker/interp/arena_packing.h"

namespace kiln {

// At one set of symbol values: one block per buffer, but those that follow each
// other in place are one block, from the first step of the first to the last of the last. In place needs equal sizes;
// where they differ, a buffer has a block of its own.
struct ArenaBlocks {
  std::vector<ArenaBlock> blocks;
  std::vector<size_t> block_of;  // per buffer
  std::vector<int64_t> bytes;    // per buffer
};
// Without `in_place` every buffer has a block of its own.
Result<ArenaBlocks> BlocksOf(const Plan& plan, std::span<const int64_t> symbol_values, bool in_place);

// Where every buffer lies. In place is taken where it leaves the arena at least a tenth smaller: measured over real
// models it costs or gains a few percent of the time, and only memory pays for that.
struct BufferPlaces {
  std::vector<int64_t> offsets, bytes;  // per buffer
  int64_t arena_bytes = 0;
  bool in_place = false;
};
Result<BufferPlaces> PlaceBuffers(const Plan& plan, std::span<const int64_t> symbol_values);

}  // namespace kiln
