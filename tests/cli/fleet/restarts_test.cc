#include "cli/fleet/restarts.h"

#include <gtest/gtest.h>

#include <vector>

namespace kiln::cli {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(Restarts, OnceAtOnceThenAfterLongerPausesThenNoMore) {
  Restarts restarts;
  restarts.OnStart(0);
  int64_t now = kSecond;
  std::vector<int64_t> pauses;
  while (const auto pause = restarts.OnEnd(now)) {
    pauses.push_back(*pause / kSecond);
    now += *pause + kSecond;
    restarts.OnStart(now);
  }
  EXPECT_EQ(pauses, (std::vector<int64_t>{0, 1, 2, 4, 8}));
  EXPECT_EQ(restarts.OnEnd(now), std::nullopt);
}

TEST(Restarts, OneThatRanForLongBeginsAnew) {
  Restarts restarts;
  restarts.OnStart(0);
  int64_t now = 0;
  for (int i = 0; i < 20; ++i) {
    now += Restarts::kStableNs;
    EXPECT_EQ(restarts.OnEnd(now), 0);
    restarts.OnStart(now);
  }
}

TEST(Restarts, OneThatCannotBeStartedIsGivenUp) {
  Restarts restarts;
  int64_t now = 10 * kSecond;
  restarts.OnStart(now);
  int tries = 0;
  while (const auto pause = restarts.OnEnd(now)) {
    now += *pause;
    ++tries;
  }
  EXPECT_EQ(tries, Restarts::kInARow);
}

}  // namespace
}  // namespace kiln::cli
