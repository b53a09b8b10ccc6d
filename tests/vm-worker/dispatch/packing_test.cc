#include <gtest/gtest.h>

#include <random>

#include "common/base/limits.h"
#include "vm-worker/interp/arena_packing.h"

namespace kiln {
namespace {

bool Overlap(int64_t a, int64_t a_size, int64_t b, int64_t b_size) {
  return a < b + b_size && b < a + a_size;
}

TEST(PackArena, BlocksAliveTogetherNeverOverlap) {
  const uint64_t seed = 20260101;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<ArenaBlock> blocks(random() % 40);
    for (ArenaBlock& block : blocks) {
      block.bytes = static_cast<int64_t>(random() % 5000);
      block.first_step = static_cast<int32_t>(random() % 30);
      block.last_step = block.first_step + static_cast<int32_t>(random() % 10);
    }
    const ArenaPacking packing = PackArena(blocks).value();
    for (size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(packing.offsets[i] % 64, 0);
      EXPECT_LE(packing.offsets[i] + blocks[i].bytes, packing.bytes);
      for (size_t j = 0; j < i; ++j) {
        if (blocks[i].last_step < blocks[j].first_step || blocks[j].last_step < blocks[i].first_step) continue;
        EXPECT_FALSE(Overlap(packing.offsets[i], blocks[i].bytes, packing.offsets[j], blocks[j].bytes))
            << "seed " << seed << " round " << round;
      }
    }
  }
}

TEST(PackArena, BlocksOfDisjointLivesShareMemory) {
  const std::vector<ArenaBlock> blocks = {{1024, 0, 1}, {1024, 2, 3}, {512, 1, 2}};
  EXPECT_EQ(PackArena(blocks)->bytes, 1024 + 512);
}

TEST(PackArena, AnImpossibleSizeIsAnError) {
  const std::vector<ArenaBlock> blocks = {{-1, 0, 0}};
  EXPECT_EQ(PackArena(blocks).error().code, ErrorCode::kLimitExceeded);
  const std::vector<ArenaBlock> huge = {{limits::kTensorBytesMax + 1, 0, 0}};
  EXPECT_EQ(PackArena(huge).error().code, ErrorCode::kLimitExceeded);
}

}  // namespace
}  // namespace kiln
