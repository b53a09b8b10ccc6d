#include "common/base/philox.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

namespace kiln {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers that the authors of the generator publish for philox4x32 with ten rounds.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Every part of key, call and position is used: one bit of it changes about half of the bits.
TEST(RandomDraw, EveryBitOfKeyCallAndPositionChangesTheBlock) {
  const Words base = RandomDraw{5, 6}.Block(7);
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t flip = uint64_t{1} << bit;
    for (const Words& other :
         {RandomDraw{5 ^ flip, 6}.Block(7), RandomDraw{5, 6 ^ flip}.Block(7), RandomDraw{5, 6}.Block(7 ^ flip)}) {
      int changed = 0;
      for (size_t i = 0; i < 4; ++i) changed += std::popcount(base[i] ^ other[i]);
      EXPECT_GT(changed, 32) << bit;
      EXPECT_LT(changed, 96) << bit;
    }
  }
}

TEST(RandomDraw, UniformsAreBelowOneAndUseAllTheirBits) {
  const RandomDraw draw{1, 2};
  uint64_t ones = 0, zeros = 0;
  for (uint64_t i = 0; i < 1000; ++i)
    for (const double value : draw.Uniforms(i)) {
      EXPECT_GE(value, 0);
      EXPECT_LT(value, 1);
      const auto bits = static_cast<uint64_t>(value * 0x1p53);
      ones |= bits;
      zeros |= ~bits;
    }
  constexpr uint64_t kAll = (uint64_t{1} << 53) - 1;
  EXPECT_EQ(ones & kAll, kAll);
  EXPECT_EQ(zeros & kAll, kAll);
}

TEST(RandomKey, DiffersBySeedAndByStream) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 64; ++seed)
    for (uint32_t index = 0; index < 64; ++index) keys.insert(RandomKey(seed << 32, index));
  EXPECT_EQ(keys.size(), 64u * 64u);
}

}  // namespace
}  // namespace kiln
