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

// Values of a request leave the worker only when they are asked for.
TEST(CheckShadow, AWrongPlanIsNamedWithElementAndShareAndNoValue) {
  const ShadowVerdict verdict = CheckShadow(Sample(Linked(ReluPlan(0, 4096, TensorOp::kAbs))));
  EXPECT_EQ(verdict.outcome, ShadowOutcome::kMismatch);
  EXPECT_EQ(verdict.detail, "output 0 differs at [0, 0] by 1.0e+00 of its size (4 of 8 elements differ)");
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
  int clean = 0;
  ShadowRunner runner({.queue_max = 2, .own_thread = false},
                      [&](ShadowVerdict verdict) { clean += verdict.outcome == ShadowOutcome::kClean ? 1 : 0; });
  const auto plan = Linked(ReluPlan(0, 4096));
  int accepted = 0;
  for (int i = 0; i < 50; ++i) accepted += runner.Offer(Sample(plan)) ? 1 : 0;
  EXPECT_EQ(accepted, 2);
  EXPECT_FALSE(runner.HasRoom());
  EXPECT_TRUE(runner.Step());
  EXPECT_TRUE(runner.Offer(Sample(plan)));
  while (runner.Step()) {
  }
  EXPECT_EQ(clean, 3);
}

TEST(ShadowRunner, AReportThatThrowsEndsNoThread) {
  std::atomic<int> reports{0};
  ShadowRunner runner({.core_share_max = 1.0}, [&](const ShadowVerdict&) {
    ++reports;
    throw std::bad_alloc();
  });
  const auto plan = Linked(ReluPlan(0, 4096));
  for (int sample = 1; sample <= 2; ++sample) {
    ASSERT_TRUE(runner.Offer(Sample(plan)));
    for (int i = 0; i < 5'000 && reports < sample; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(reports, sample);
  }
}

#ifdef __x86_64__
TEST(ShadowRunner, EndsWithoutWaitingForAPlanThatDoesNot) {
  const std::vector<uint8_t> blob = BuildKernelBlob(HostTargets().front(), 0, std::vector<uint8_t>{0xeb, 0xfe});
  Plan plan = ReluPlan(0, 4096);
  plan.kernels = {HashBytes(blob)};
  plan.steps = {{KernelStep{0, {0, 1}, {}, Dim::Const(1), Dim::Const(1), Dim::Const(0)}, {0}, "kernel"}};
  const auto linked = Linked(std::move(plan), {blob});
  std::atomic<int> reports{0};
  const int64_t start = SystemClock().NowNs();
  {
    ShadowRunner runner({.core_share_max = 1.0}, [&](const ShadowVerdict& verdict) {
      EXPECT_EQ(verdict.outcome, ShadowOutcome::kUndecided) << verdict.detail;
      ++reports;
    });
    ASSERT_TRUE(runner.Offer(Sample(linked)));
    while (!runner.HasRoom()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_LT(SystemClock().NowNs() - start, int64_t{30} * 1'000'000'000) << "the processor time of a run is 60 s";
}
#endif

}  // namespace
}  // namespace kiln
