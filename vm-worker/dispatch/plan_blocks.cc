#include "vm-worker/dispatch/plan_blocks.h"

#include <algorithm>
#include <numeric>

namespace kiln {
namespace {

constexpr int64_t kInPlaceSavesMin = 10;  // one part in so many of the arena

}  // namespace

Result<ArenaBlocks> BlocksOf(const Plan& plan, std::span<const int64_t> symbol_values, bool in_place) {
  ArenaBlocks result;
  for (const PlanBuffer& buffer : plan.buffers) {
    ASSIGN_OR_RETURN(const int64_t bytes, plan.symbols.Evaluate(buffer.bytes, symbol_values));
    result.bytes.push_back(bytes);
  }
  // In the order of their first steps: whoever is followed in place comes before who follows.
  std::vector<size_t> order(plan.buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return plan.buffers[i].first_step; });
  result.block_of.resize(plan.buffers.size());
  for (size_t i : order) {
    const PlanBuffer& buffer = plan.buffers[i];
    const auto from = static_cast<size_t>(buffer.in_place_of);
    if (in_place && buffer.in_place_of >= 0 && result.bytes[from] == result.bytes[i]) {
      result.block_of[i] = result.block_of[from];
      result.blocks[result.block_of[i]].last_step = buffer.last_step;
    } else {
      result.block_of[i] = result.blocks.size();
      result.blocks.push_back({result.bytes[i], buffer.first_step, buffer.last_step});
    }
  }
  return result;
}

Result<BufferPlaces> PlaceBuffers(const Plan& plan, std::span<const int64_t> symbol_values) {
  ASSIGN_OR_RETURN(ArenaBlocks blocks, BlocksOf(plan, symbol_values, false));
  ASSIGN_OR_RETURN(ArenaPacking packing, PackArena(blocks.blocks));
  BufferPlaces places;
  if (std::ranges::any_of(plan.buffers, [](const PlanBuffer& buffer) { return buffer.in_place_of >= 0; })) {
    ASSIGN_OR_RETURN(ArenaBlocks shared, BlocksOf(plan, symbol_values, true));
    ASSIGN_OR_RETURN(ArenaPacking smaller, PackArena(shared.blocks));
    places.in_place =
        smaller.bytes <= packing.bytes - packing.bytes / kInPlaceSavesMin && smaller.bytes < packing.bytes;
    if (places.in_place) {
      blocks = std::move(shared);
      packing = std::move(smaller);
    }
  }
  for (size_t block : blocks.block_of) places.offsets.push_back(packing.offsets[block]);
  places.bytes = std::move(blocks.bytes);
  places.arena_bytes = packing.bytes;
  return places;
}

}  // namespace kiln
