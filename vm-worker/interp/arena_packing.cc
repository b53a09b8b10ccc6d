#include "vm-worker/interp/arena_packing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "common/base/checked_math.h"
#include "common/base/limits.h"

namespace kiln {
namespace {

constexpr int64_t kLine = 64;  // what offsets are multiples of
// Another order is tried while the packing is more than this part above what no packing can be below.
constexpr int64_t kGoodEnough = 100;

bool AliveTogether(const ArenaBlock& a, const ArenaBlock& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

// Blocks one after the other, each at the lowest offset that fits.
ArenaPacking Place(std::span<const ArenaBlock> blocks, std::span<const size_t> order) {
  ArenaPacking packing;
  packing.offsets.assign(blocks.size(), 0);
  std::vector<size_t> placed;  // by offset
  for (size_t i : order) {
    const ArenaBlock& block = blocks[i];
    int64_t offset = 0;
    for (size_t other : placed) {
      if (!AliveTogether(blocks[other], block)) continue;
      if (packing.offsets[other] >= offset + block.bytes) break;  // the gap before it fits
      offset = std::max(offset, RoundUp(packing.offsets[other] + blocks[other].bytes, kLine));
    }
    packing.offsets[i] = offset;
    packing.bytes = std::max(packing.bytes, RoundUp(offset + block.bytes, kLine));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](int64_t value, size_t index) { return value < packing.offsets[index]; }),
                  i);
  }
  return packing;
}

std::vector<size_t> LargestFirst(std::span<const ArenaBlock> blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return blocks[i].bytes; });
  return order;
}

// Bytes alive per step of [0, last step].
std::vector<int64_t> AliveBytes(std::span<const ArenaBlock> blocks) {
  int32_t steps = 0;
  for (const ArenaBlock& block : blocks) steps = std::max(steps, block.last_step + 1);
  std::vector<int64_t> alive(static_cast<size_t>(steps) + 1, 0);
  for (const ArenaBlock& block : blocks) {
    alive[static_cast<size_t>(block.first_step)] += RoundUp(block.bytes, kLine);
    alive[static_cast<size_t>(block.last_step) + 1] -= RoundUp(block.bytes, kLine);
  }
  std::partial_sum(alive.begin(), alive.end(), alive.begin());
  return alive;
}

// The blocks of the step with the most bytes, then of the next such step, the largest of each first.
std::vector<size_t> FullestStepFirst(std::span<const ArenaBlock> blocks) {
  const std::vector<int64_t> alive = AliveBytes(blocks);
  std::vector<int64_t> fullest;  // per block: the most bytes that it is alive with
  for (const ArenaBlock& block : blocks)
    fullest.push_back(*std::max_element(alive.begin() + block.first_step, alive.begin() + block.last_step + 1));
  std::vector<size_t> order = LargestFirst(blocks);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return fullest[i]; });
  return order;
}

std::vector<size_t> FirstStepFirst(std::span<const ArenaBlock> blocks) {
  std::vector<size_t> order = LargestFirst(blocks);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return blocks[i].first_step; });
  return order;
}

}  // namespace

int64_t PeakBytes(std::span<const ArenaBlock> blocks) {
  const std::vector<int64_t> alive = AliveBytes(blocks);
  return *std::ranges::max_element(alive);
}

Result<ArenaPacking> PackArena(std::span<const ArenaBlock> blocks) {
  for (const ArenaBlock& block : blocks)
    if (block.bytes < 0 || block.bytes > limits::kTensorBytesMax)
      return Fail(ErrorCode::kLimitExceeded, "temporary of " + std::to_string(block.bytes) + " bytes; the limit is " +
                                                 std::to_string(limits::kTensorBytesMax));
  const int64_t least = PeakBytes(blocks);
  ArenaPacking best;
  for (const auto& order : {LargestFirst(blocks), FullestStepFirst(blocks), FirstStepFirst(blocks)}) {
    ArenaPacking packing = Place(blocks, order);
    if (best.offsets.empty() || packing.bytes < best.bytes) best = std::move(packing);
    if (best.bytes <= least + least / kGoodEnough) return best;
  }
  return best;
}

}  // namespace kiln
