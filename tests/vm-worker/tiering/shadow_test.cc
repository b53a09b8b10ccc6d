#include "vm-worker/tiering/shadow.h"

#include <atomic>

#include "tests/vm-worker/dispatch/plan_fixture.h"

namespace kiln {
namespace {

using testing::Linked;
using testing::ReluPlan;

ShadowSample Sample(std::shared_ptr<const LinkedPlan> plan) {
  const std::vector<float> x = {-1, 2, -3, 4, 5, -6, 7, -8}, y = {0, 2, 0, 4, 5, 0, 7, 0};
  ShadowSample sample;
  sample.plan = std::move(plan);
  sample.inputs = {Tensor::Of<float>(DType::kF32, {2, 4}, x)};
  sample.outputs = {Tensor::Of<float>(DType::kF32, {2, 4}, y)};
  return sample;
}

TEST(CheckShadow, ACorrectPlanIsClean) {
  const ShadowVerdict verdict = CheckShadow(Sample(Linked(ReluPlan(0, 4096))));
  EXPECT_EQ(verdict.outcome, ShadowOutcome::kClean) << verdict.detail;
}

TEST(CheckShadow, AWrongPlanIsNamedWithElementAndBothValues) {
  const ShadowVerdict verdict = CheckShadow(Sample(Linked(ReluPlan(0, 4096, TensorOp::kAbs))));
  EXPECT_EQ(verdict.outcome, ShadowOutcome::kMismatch);
  EXPECT_EQ(verdict.detail, "output 0 differs at [0, 0]: 1, expected 0 (4 of 8 elements differ)");
}

TEST(CheckShadow, ComparesAPlansAnswerWithTheInterpreter) {
  ShadowSample sample = Sample(Linked(ReluPlan(0, 4096, TensorOp::kAbs)));
  sample.answer = SampleAnswer::kThisPlan;
  EXPECT_EQ(CheckShadow(sample).outcome, ShadowOutcome::kClean) << "the outputs are right, whatever the plan would do";
  sample.outputs[0].ref.as<float>()[3] += 1;
  EXPECT_EQ(CheckShadow(sample).outcome, ShadowOutcome::kMismatch);
}

// Neither the plan nor the interpreter has run yet.
TEST(CheckShadow, WhereAnotherPlanAnsweredBothAreRun) {
  ShadowSample sample = Sample(Linked(ReluPlan(0, 4096)));
  sample.outputs.clear();
  sample.answer = SampleAnswer::kOtherPlan;
  const ShadowVerdict clean = CheckShadow(sample);
  EXPECT_EQ(clean.outcome, ShadowOutcome::kClean) << clean.detail;
  EXPECT_FALSE(clean.answered_by_plan);
  sample.plan = Linked(ReluPlan(0, 4096, TensorOp::kAbs));
  EXPECT_EQ(CheckShadow(sample).outcome, ShadowOutcome::kMismatch);
}

TEST(CheckShadow, WithoutMemoryForTheRunItIsUndecided) {
  Plan plan = ReluPlan(0, 4096);
  for (int i = 0; i < 256; ++i) plan.buffers.push_back({Dim::Const(int64_t{1} << 39), 0, 0});
  EXPECT_EQ(CheckShadow(Sample(Linked(std::move(plan)))).outcome, ShadowOutcome::kUndecided);
}

TEST(ShadowRunner, ReportsEverySampleItAcceptedAndBoundsItsQueue) {
  std::atomic<int> clean{0};
  ShadowRunner runner({.queue_max = 2, .core_share_max = 1.0},
                      [&](ShadowVerdict verdict) { clean += verdict.outcome == ShadowOutcome::kClean ? 1 : 0; });
  const auto plan = Linked(ReluPlan(0, 4096));
  int accepted = 0;
  for (int i = 0; i < 50; ++i) accepted += runner.Offer(Sample(plan)) ? 1 : 0;
  EXPECT_GE(accepted, 1);
  for (int i = 0; i < 1000 && clean < accepted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(clean, accepted);
}

}  // namespace
}  // namespace kiln
