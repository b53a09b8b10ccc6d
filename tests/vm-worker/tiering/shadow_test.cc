#include "vm-worker/tiering/shadow.h"

#include <atomic>
#include <cmath>

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
  EXPECT_EQ(verdict.detail, "output 0: element 0 is 1.000000, the interpreter gave 0.000000");
}

TEST(FirstDifference, FloatsAreHeldToTheRowsMagnitude) {
  const std::vector<float> a = {1000, 1e-3f, 1, 1e-3f};
  std::vector<float> b = {1000, 0.5f, 1, 1e-3f};
  const auto of = [](const std::vector<float>& values) { return Tensor::Of<float>(DType::kF32, {2, 2}, values); };
  const Tolerance tolerance{1e-3, 1e-5};
  EXPECT_FALSE(FirstDifference(of(a).ref, of(b).ref, tolerance)) << "0.5 beside 1000 is rounding";
  b = {1000, 1e-3f, 1, 0.5f};
  EXPECT_TRUE(FirstDifference(of(a).ref, of(b).ref, tolerance)) << "0.5 beside 1 is not";
  b = {NAN, 1e-3f, 1, 1e-3f};
  EXPECT_TRUE(FirstDifference(of(a).ref, of(b).ref, tolerance));
  EXPECT_FALSE(FirstDifference(of(b).ref, of(b).ref, tolerance)) << "a NaN agrees with a NaN";
}

TEST(FirstDifference, IntegersAreExact) {
  const std::vector<int64_t> a = {1, 2}, b = {1, 3};
  const auto of = [](const std::vector<int64_t>& values) { return Tensor::Of<int64_t>(DType::kI64, {2}, values); };
  EXPECT_FALSE(FirstDifference(of(a).ref, of(a).ref, {1, 1}));
  EXPECT_TRUE(FirstDifference(of(a).ref, of(b).ref, {1, 1}));
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
