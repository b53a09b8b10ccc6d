#include "cache-store/eviction/policy.h"

#include <gtest/gtest.h>

namespace kiln::store {
namespace {

Digest D(uint8_t fill) {
  Digest digest;
  digest.bytes.fill(fill);
  return digest;
}

TEST(Eviction, LeastWorthLeavesFirst) {
  const std::vector<EvictionCandidate> candidates{
      {.plan_key = D(1), .compile_us = 1000, .use = 10, .bytes = 100},   // cheap to keep, used
      {.plan_key = D(2), .compile_us = 1000, .use = 0, .bytes = 100},    // unused
      {.plan_key = D(3), .compile_us = 1000, .use = 10, .bytes = 5000},  // large
      {.plan_key = D(4), .compile_us = 9000, .use = 0, .bytes = 100},    // expensive to make
      {.plan_key = D(5), .compile_us = 1, .use = 0, .bytes = 9000, .pinned = true},
      {.plan_key = D(6), .compile_us = 90000, .use = 100, .bytes = 1, .worthless = true},
  };
  EXPECT_EQ(EvictionOrder(candidates), (std::vector<Digest>{D(6), D(3), D(2), D(4), D(1)}));
}

TEST(Eviction, TiesAreBrokenByKey) {
  const std::vector<EvictionCandidate> candidates{{.plan_key = D(9), .bytes = 1}, {.plan_key = D(2), .bytes = 1}};
  EXPECT_EQ(EvictionOrder(candidates), (std::vector<Digest>{D(2), D(9)}));
}

TEST(Eviction, UseHalvesPerHalfLife) {
  EXPECT_DOUBLE_EQ(DecayedUse(8, kUseHalfLifeMs), 4);
  EXPECT_DOUBLE_EQ(DecayedUse(8, 3 * kUseHalfLifeMs), 1);
  EXPECT_DOUBLE_EQ(DecayedUse(8, -5), 8);  // a wall clock that went back changes nothing
}

}  // namespace
}  // namespace kiln::store
