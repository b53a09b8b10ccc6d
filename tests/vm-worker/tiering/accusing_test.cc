// A plan that was wrong here is shown to the compile service, so that one worker is enough for the fleet.
#include <gtest/gtest.h>

#include "tests/vm-worker/tiering/fake_fleet.h"

namespace kiln::testing {
namespace {

constexpr int64_t kHourMs = 3'600'000;

Plan WrongPlan() {
  return ReluPlan(0, 4096, TensorOp::kAbs);
}

uint64_t Outcome(const SteppedWorker& worker, ReproduceOutcome outcome) {
  return worker.tiers.Stats().reproductions[static_cast<size_t>(outcome)];
}

TEST(Accusing, TheCompileServiceIsAskedOnceWithTheCaseAndNoValues) {
  SteppedWorker worker;
  const Plan wrong = WrongPlan();
  const PlanKey key = worker.fleet.Publish(wrong);
  worker.fleet.reproduced = {ReproduceOutcome::kMismatch, "output 0 differs"};
  worker.Live(kHourMs, 1'000);
  ASSERT_EQ(worker.fleet.reproductions.size(), 1u);
  const ReproduceRequest& asked = worker.fleet.reproductions[0];
  EXPECT_EQ(asked.plan_key, key);
  EXPECT_EQ(asked.contents, HashBytes(EncodePlan(wrong)));
  EXPECT_EQ(asked.inputs, (std::vector<Dims>{{3, 4}}));
  EXPECT_EQ(DecodeSegment(asked.segment)->id, ReluSegment().id);
  EXPECT_EQ(Outcome(worker, ReproduceOutcome::kMismatch), 1u);
  EXPECT_EQ(worker.Status().reproduction, "mismatch, output 0 differs; no worker uses the plan any more");
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(Accusing, APlanThatIsRightElsewhereStaysOutOfUseHere) {
  SteppedWorker worker;
  worker.fleet.Publish(WrongPlan());
  worker.Live(kHourMs, 1'000);
  EXPECT_EQ(Outcome(worker, ReproduceOutcome::kAgrees), 1u);
  EXPECT_EQ(worker.fleet.reproductions.size(), 1u);
  EXPECT_EQ(worker.ByPlan(), 0u);
  EXPECT_EQ(worker.Status().reason, MissReason::kQuarantined);
}

TEST(Accusing, AServiceThatIsAwayIsAskedAgainAFewTimes) {
  SteppedWorker worker;
  worker.fleet.reproduce_fails = ErrorCode::kUnavailable;
  worker.fleet.Publish(WrongPlan());
  worker.Live(10'000, 1'000);
  const size_t early = worker.fleet.reproductions.size();
  EXPECT_GE(early, 2u);
  worker.fleet.reproduce_fails.reset();
  worker.Live(60'000, 1'000);
  EXPECT_EQ(Outcome(worker, ReproduceOutcome::kAgrees), 1u);

  SteppedWorker other;
  other.fleet.reproduce_fails = ErrorCode::kBusy;
  other.fleet.Publish(WrongPlan());
  other.Live(kHourMs, 1'000);
  EXPECT_GE(other.fleet.reproductions.size(), 5u);
  EXPECT_LE(other.fleet.reproductions.size(), 12u) << "in an hour";
  EXPECT_EQ(other.ByPlan(), 0u);
}

TEST(Accusing, AServiceOfTheVersionBeforeIsNotAskedAgain) {
  SteppedWorker worker;
  worker.fleet.reproduce_fails = ErrorCode::kUnsupported;
  worker.fleet.Publish(WrongPlan());
  worker.Live(kHourMs, 1'000);
  EXPECT_EQ(worker.fleet.reproductions.size(), 1u);
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kMismatch), 1u) << "a second worker's report may still hide it";
}

TEST(Accusing, WithoutACompileServiceTheStoreIsTold) {
  SteppedWorker worker;
  worker.fleet.can_compile = false;
  worker.fleet.Publish(WrongPlan());
  worker.Live(10'000);
  EXPECT_TRUE(worker.fleet.reproductions.empty());
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kMismatch), 1u);
}

}  // namespace
}  // namespace kiln::testing
