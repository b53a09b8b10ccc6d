#include "vm-worker/tiering/shadow.h"

#include <atomic>

#include "tests/vm-worker/dispatch/plan_fixture.h"

namespace kiln {
namespace {

using testing::Linked;
using testing::ReluPlan;

ShadowSample Sample(std::shared_ptr<const LinkedPlan> plan) {
  const std::vector<float> x = {-1, 2, -3, 4, 5, -6, 7, -8}, y = {0, 2, 0, 4, 5, 0, 7, 0};
  return {
      std::move(plan), {Tensor::Of<float>(DType::kF32, {2, 4}, x)}, {}, {Tensor::Of<float>(DType::kF32, {2, 4}, y)}};
}

TEST(CheckShadow, ACorrectPlanIsClean) {
  const ShadowVerdict verdict = CheckShadow(Sample(Linked(ReluPlan(0, 4096))));
  EXPECT_TRUE(verdict.clean) << verdict.detail;
}

TEST(CheckShadow, AWrongPlanIsNamedWithElementAndBothValues) {
  const ShadowVerdict verdict = CheckShadow(Sample(Linked(ReluPlan(0, 4096, TensorOp::kAbs))));
  EXPECT_FALSE(verdict.clean);
  EXPECT_EQ(verdict.detail, "output 0 differs at [0, 0]: 1, expected 0 (4 of 8 elements differ)");
}

TEST(ShadowRunner, ReportsEverySampleItAcceptedAndBoundsItsQueue) {
  std::atomic<int> clean{0};
  ShadowRunner runner({2, 1.0}, [&](ShadowVerdict verdict) { clean += verdict.clean ? 1 : 0; });
  const auto plan = Linked(ReluPlan(0, 4096));
  int accepted = 0;
  for (int i = 0; i < 50; ++i) accepted += runner.Offer(Sample(plan)) ? 1 : 0;
  EXPECT_GE(accepted, 1);
  for (int i = 0; i < 1000 && clean < accepted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(clean, accepted);
}

}  // namespace
}  // namespace kiln
