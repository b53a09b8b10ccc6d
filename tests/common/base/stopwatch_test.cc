#include "common/base/stopwatch.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kiln {
namespace {

TEST(Stopwatch, RunsAtTheRateOfTheRealClock) {
  const int64_t start = SystemClock().NowNs(), first = Stopwatch().NowNs();
  int64_t last = first;
  while (SystemClock().NowNs() - start < 50'000'000) {
    const int64_t now = Stopwatch().NowNs();
    ASSERT_GE(now, last);
    last = now;
  }
  const int64_t measured = Stopwatch().NowNs() - first, real = SystemClock().NowNs() - start;
  // Readings are not taken at the same moment: a pause between them is as long as the machine wants.
  EXPECT_NEAR(static_cast<double>(measured), static_cast<double>(real), static_cast<double>(real) * 0.2);
}

}  // namespace
}  // namespace kiln
