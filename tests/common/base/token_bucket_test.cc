#include "common/base/token_bucket.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

TEST(TokenBucket, GivesABurstAndThenItsRate) {
  TokenBucket bucket({3, 0.5}, 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.Take(0));
  EXPECT_FALSE(bucket.Take(0));
  EXPECT_GT(bucket.WaitNs(0), 2 * kSecondNs - 1000);
  EXPECT_LE(bucket.WaitNs(0), 2 * kSecondNs + 1);
  EXPECT_FALSE(bucket.Take(kSecondNs));
  EXPECT_TRUE(bucket.Take(2 * kSecondNs));
  int taken = 0;
  for (int64_t second = 2; second <= 1'002; ++second) taken += bucket.Take(second * kSecondNs) ? 1 : 0;
  EXPECT_EQ(taken, 500);
}

TEST(TokenBucket, HoldsNoMoreThanItsBurst) {
  TokenBucket bucket({2, 10}, 0);
  EXPECT_TRUE(bucket.IsFull(0));
  bucket.Return(0);
  int taken = 0;
  while (bucket.Take(1'000 * kSecondNs)) ++taken;
  EXPECT_EQ(taken, 2);
  EXPECT_FALSE(bucket.IsFull(1'000 * kSecondNs));
  bucket.Return(1'000 * kSecondNs);
  EXPECT_TRUE(bucket.Take(1'000 * kSecondNs));
  EXPECT_FALSE(bucket.Take(1'000 * kSecondNs));
}

TEST(TokenBuckets, AreBoundedAndForgetThoseThatAreFull) {
  TokenBuckets buckets({1, 1}, 10);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(buckets.Of("idle" + std::to_string(i), 0).IsFull(0));
  EXPECT_LE(buckets.size(), 10u);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(buckets.Of("busy" + std::to_string(i), 0).Take(0));
  int taken = 0;
  for (int i = 0; i < 100; ++i) taken += buckets.Of("more" + std::to_string(i), 0).Take(0) ? 1 : 0;
  EXPECT_LE(taken, 2) << "those for whom there is no room share one";
  EXPECT_LE(buckets.size(), 11u);
  EXPECT_FALSE(buckets.Of("busy0", 0).Take(0)) << "one that is in use is not forgotten";
  EXPECT_TRUE(buckets.Of("busy0", kSecondNs).Take(kSecondNs));
}

}  // namespace
}  // namespace kiln
