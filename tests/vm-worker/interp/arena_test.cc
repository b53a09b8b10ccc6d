#include "vm-worker/interp/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

namespace kiln {
namespace {

TEST(RangeAllocator, PlacesBestFitAndJoinsNeighbours) {
  RangeAllocator ranges(640);
  EXPECT_EQ(ranges.Allocate(128), 0u);
  EXPECT_EQ(ranges.Allocate(64), 128u);
  EXPECT_EQ(ranges.Allocate(64), 192u);
  EXPECT_EQ(ranges.Allocate(64), 256u);
  ranges.Free(0, 128);
  ranges.Free(192, 64);
  EXPECT_EQ(ranges.Allocate(64), 192u);  // the hole that fits, not the first
  EXPECT_EQ(ranges.Allocate(640), std::nullopt);
  ranges.Free(192, 64);
  ranges.Free(128, 64);
  EXPECT_EQ(ranges.Allocate(256), 0u);
  ranges.Free(0, 256);
  ranges.Free(256, 64);
  EXPECT_TRUE(ranges.IsWholeFree());
}

TEST(Arena, BlocksNeverOverlap) {
  Arena arena(size_t{1} << 30);
  std::mt19937 random(7);
  struct Contents {
    uint8_t byte;
    size_t bytes;  // asked for
  };
  std::map<BlockId, Contents> live;
  for (int i = 0; i < 5000; ++i) {
    if (live.size() < 20 || random() % 2) {
      const size_t bytes = random() % 50000;
      auto block = arena.Allocate(bytes);
      ASSERT_TRUE(block);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data(*block)) % kArenaAlignment, 0u);
      EXPECT_FALSE(live.contains(*block));
      EXPECT_GE(arena.size(*block), bytes);
      live[*block] = {static_cast<uint8_t>(random()), bytes};
      if (bytes > 0) std::memset(arena.data(*block), live[*block].byte, bytes);
    } else {
      auto victim = std::next(live.begin(), static_cast<ptrdiff_t>(random() % live.size()));
      const uint8_t* bytes = static_cast<const uint8_t*>(arena.data(victim->first));
      for (size_t k = 0; k < victim->second.bytes; k += 61) ASSERT_EQ(bytes[k], victim->second.byte);
      arena.Release(victim->first);
      live.erase(victim);
    }
  }
  for (const auto& [block, contents] : live) arena.Release(block);
  EXPECT_EQ(arena.stats().used_bytes, 0u);
}

TEST(Arena, ABlockLivesUntilItsLastReference) {
  Arena arena(1 << 20);
  const BlockId block = *arena.Allocate(100);
  arena.Retain(block);
  arena.Release(block);
  EXPECT_EQ(arena.stats().used_bytes, 128u);
  arena.Release(block);
  EXPECT_EQ(arena.stats().used_bytes, 0u);
}

TEST(Arena, RecycleJoinsTheChunksOfAGrowingRun) {
  Arena arena(size_t{1} << 30);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(arena.Allocate(1 << 20));
  EXPECT_GT(arena.stats().mappings, 1u);
  arena.Recycle();
  const uint64_t mappings = arena.stats().mappings;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(arena.Allocate(1 << 20));
    EXPECT_EQ(arena.stats().mappings, mappings);
    arena.Recycle();
  }
  arena.Trim();
  EXPECT_EQ(arena.stats().reserved_bytes, 0u);
}

TEST(Arena, RefusesMoreThanItsLimit) {
  Arena arena(1 << 20);
  EXPECT_EQ(arena.Allocate(2 << 20).error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(arena.Allocate(400 << 10));
  EXPECT_FALSE(arena.Allocate(900 << 10));
  arena.Recycle();
  EXPECT_TRUE(arena.Allocate(900 << 10));
}

TEST(ArenaDeathTest, AStoreBehindTheLastBlockFaults) {
  Arena arena(1 << 20);
  const BlockId block = *arena.Allocate(1 << 18);  // all of the first chunk
  char* end = static_cast<char*>(arena.data(block)) + arena.size(block);
  EXPECT_DEATH(*static_cast<volatile char*>(end) = 1, "");
  EXPECT_DEATH(*(static_cast<volatile char*>(arena.data(block)) - 1) = 1, "");
}

TEST(Arena, MapsNoMoreThanTheWorkersBudgetHas) {
  MemoryBudget budget(4 << 20);
  {
    Arena arena(size_t{1} << 40, &budget);
    ASSERT_TRUE(arena.Allocate(1 << 20).has_value());
    EXPECT_GE(budget.used(MemoryUse::kArenas), 1 << 20);
    const auto refused = arena.Allocate(8 << 20);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
    EXPECT_NE(refused.error().message.find("--memory-bytes"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("arenas"), std::string::npos) << refused.error().message;
  }
  EXPECT_EQ(budget.used(), 0);
}

}  // namespace
}  // namespace kiln
