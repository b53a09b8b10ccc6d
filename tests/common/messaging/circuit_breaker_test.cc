#include "common/messaging/circuit_breaker.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr CircuitBreakerOptions kOptions{.failures_to_open = 3, .backoff_min_ms = 100, .backoff_max_ms = 1000};

TEST(CircuitBreaker, OpensAfterConsecutiveFailuresOnly) {
  CircuitBreaker breaker(kOptions, 1);
  breaker.OnFailure(0);
  breaker.OnFailure(0);
  breaker.OnSuccess();
  breaker.OnFailure(0);
  breaker.OnFailure(0);
  EXPECT_TRUE(breaker.Allow(0));
  breaker.OnFailure(0);
  EXPECT_FALSE(breaker.Allow(0));
  EXPECT_GE(breaker.RetryAfterMs(0), 100);
}

TEST(CircuitBreaker, LetsOneProbeThroughAndClosesOnItsSuccess) {
  CircuitBreaker breaker(kOptions, 2);
  for (int i = 0; i < 3; ++i) breaker.OnFailure(0);
  const int64_t later = 2000 * kMs;
  EXPECT_TRUE(breaker.Allow(later));
  EXPECT_FALSE(breaker.Allow(later));
  breaker.OnSuccess();
  EXPECT_TRUE(breaker.Allow(later));
  EXPECT_EQ(breaker.state(), CircuitBreaker::State::kClosed);
}

TEST(CircuitBreaker, AProbeThatTakesLongHoldsUpNobodyElse) {
  CircuitBreaker breaker(kOptions, 2);
  for (int i = 0; i < 3; ++i) breaker.OnFailure(0);
  const int64_t later = 2000 * kMs;
  ASSERT_TRUE(breaker.Allow(later)) << "a call that is answered, or not, in two minutes";
  int passed = 0;
  for (int64_t ms = 0; ms < 10'000; ms += 10) passed += breaker.Allow(later + ms * kMs) ? 1 : 0;
  EXPECT_EQ(passed, 9);
  EXPECT_GT(breaker.RetryAfterMs(later + 9'999 * kMs), 0);
  EXPECT_LE(breaker.RetryAfterMs(later + 9'999 * kMs), kOptions.probe_gap_ms);
}

TEST(CircuitBreaker, BackoffGrowsUpToItsLimitAndNeverBeyond) {
  CircuitBreaker breaker(kOptions, 3);
  int64_t now = 0, longest = 0;
  for (int i = 0; i < 3; ++i) breaker.OnFailure(now);
  for (int round = 0; round < 200; ++round) {
    const int64_t wait = breaker.RetryAfterMs(now);
    EXPECT_GE(wait, 100);
    EXPECT_LE(wait, 1000);
    longest = std::max(longest, wait);
    now += wait * kMs;
    ASSERT_TRUE(breaker.Allow(now));
    breaker.OnFailure(now);
  }
  EXPECT_GT(longest, 500);
}

}  // namespace
}  // namespace kiln
