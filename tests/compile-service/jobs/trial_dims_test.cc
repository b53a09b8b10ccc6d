#include "compile-service/jobs/trial_dims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/base/limits.h"

namespace kiln {
namespace {

using ::testing::Contains;

using ::testing::ElementsAre;

// One kernel with the arguments (batch, width).
Plan PlanOf(SymbolGuard batch, SymbolGuard width) {
  Plan plan;
  KernelStep step{};
  step.kernel = 0;
  for (const char* name : {"batch", "width"}) step.dims.push_back(*plan.symbols.AddSymbol(name));
  plan.steps.push_back({step, {}, ""});
  plan.guard.symbols = {batch, width};
  return plan;
}
std::vector<std::vector<int64_t>> TrialsOf(const Plan& plan, std::vector<int64_t> hints) {
  return TrialDims(plan, 1, hints)[0];
}

TEST(TrialDims, TheObservedCallComesFirstThenOnesAroundItTheSmallestAndOthers) {
  const auto trials = TrialsOf(PlanOf({1}, {1}), {2, 100});
  EXPECT_EQ(trials.size(), limits::kTrialsPerKernelMax);
  EXPECT_EQ(trials[0], (std::vector<int64_t>{2, 100}));
  EXPECT_THAT(trials, Contains(ElementsAre(3, 101)));
  EXPECT_THAT(trials, Contains(ElementsAre(1, 99)));
  EXPECT_THAT(trials, Contains(ElementsAre(1, 1)));
  for (size_t i = 0; i < trials.size(); ++i)
    for (size_t j = i + 1; j < trials.size(); ++j) EXPECT_NE(trials[i], trials[j]);
}

TEST(TrialDims, AnExactPlanHasOneCall) {
  EXPECT_THAT(TrialsOf(PlanOf({1, 1}, {320, 320}), {1, 320}), ElementsAre(ElementsAre(1, 320)));
}

// Hints come from workers.
TEST(TrialDims, TheLargestNumbersAreNotPassed) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>& dims : TrialsOf(PlanOf({1}, {1}), {most, most - 1}))
    for (const int64_t dim : dims) EXPECT_GE(dim, 1);
}

TEST(TrialDims, NothingOutsideTheGuardIsTried) {
  const auto trials = TrialsOf(PlanOf({1, 1}, {64, 96, 8}), {1, 64});
  EXPECT_GT(trials.size(), 1u);
  for (const std::vector<int64_t>& dims : trials) {
    EXPECT_EQ(dims[0], 1);
    EXPECT_GE(dims[1], 64);
    EXPECT_LE(dims[1], 96);
    EXPECT_EQ(dims[1] % 8, 0);
  }
}

}  // namespace
}  // namespace kiln
