#include "vm-worker/interp/step_packing.h"

#include <algorithm>

#include "common/base/check.h"
#include "vm-worker/interp/range_allocator.h"

namespace kiln {
namespace {

// Blocks are packed anew when step order needs more than this part above the least.
constexpr size_t kSlack = 20;
// Of more blocks, tight packing takes longer than a new signature has.
constexpr size_t kTightlyPackedMax = 400;

// In an order that knows all of them; takes time with the square of their number.
void PackTighter(std::span<const ArenaBlock> blocks, StepPacking& packing) {
  if (blocks.size() > kTightlyPackedMax) return;
  const Result<ArenaPacking> tighter = PackArena(blocks);
  if (!tighter.has_value() || static_cast<size_t>(tighter->bytes) >= packing.bytes) return;
  packing.offsets.assign(tighter->offsets.begin(), tighter->offsets.end());
  packing.bytes = static_cast<size_t>(tighter->bytes);
}

}  // namespace

StepPacking PackInStepOrder(std::span<const ArenaBlock> blocks, size_t steps) {
  std::vector<std::vector<size_t>> starts(steps), ends(steps);
  for (size_t i = 0; i < blocks.size(); ++i) {
    starts[static_cast<size_t>(blocks[i].first_step)].push_back(i);
    ends[static_cast<size_t>(blocks[i].last_step)].push_back(i);
  }
  StepPacking packing{std::vector<size_t>(blocks.size()), 0, 0};
  RangeAllocator ranges(size_t{1} << 62);
  size_t alive = 0;
  for (size_t step = 0; step < steps; ++step) {
    for (const size_t i : starts[step]) {
      const auto bytes = static_cast<size_t>(blocks[i].bytes);
      const std::optional<size_t> offset = ranges.Allocate(bytes);
      KILN_CHECK(offset.has_value());
      packing.offsets[i] = *offset;
      packing.bytes = std::max(packing.bytes, *offset + bytes);
      alive += bytes;
    }
    packing.alive_bytes = std::max(packing.alive_bytes, alive);
    for (const size_t i : ends[step]) {
      ranges.Free(packing.offsets[i], static_cast<size_t>(blocks[i].bytes));
      alive -= static_cast<size_t>(blocks[i].bytes);
    }
  }
  if (packing.bytes > packing.alive_bytes + packing.alive_bytes / kSlack) PackTighter(blocks, packing);
  return packing;
}

}  // namespace kiln
