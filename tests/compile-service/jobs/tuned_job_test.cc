// Jobs of the tuned tier with a real store and real children; only the times are the test's own.
#include "compile-service/jobs/tune_kernels.h"
#include "tests/compile-service/jobs/workshop_fixture.h"

namespace kiln {
namespace {

class TunedJobTest : public WorkshopTest {
 protected:
  void SetUp() override {
    WorkshopTest::SetUp();
    UseValidator(KILN_BIN_DIR "/kiln-validate-child", {"0"});
  }
  // One whose host is the requests' target, where the second form of a kernel takes `second_ns` and every other 1000.
  CompileWorkshop TimedWorkshop(int64_t second_ns) {
    CompileWorkshop workshop = Workshop();
    workshop.host = Target::kX86V2;
    workshop.time_kernel = [this, second_ns](const TimeJob& job) -> Result<TimeAnswer> {
      ++timed_;
      EXPECT_FALSE(job.calls.empty());
      EXPECT_GT(job.forms.size(), 1u);
      TimeAnswer answer;
      answer.ns.assign(job.forms.size(), 1000);
      answer.ns.at(1) = second_ns;
      return answer;
    };
    return workshop;
  }
  // Until the job is done; `returns` counts how often it gave its thread back.
  Result<CompileOutcome> RunJob(const CompileRequest& request, CompileWorkshop& workshop, int* returns = nullptr) {
    CompileJob job(request, workshop, std::make_shared<JobControl>());
    for (int i = 0; i < 100; ++i) {
      ASSIGN_OR_RETURN(const std::optional<CompileOutcome> outcome, job.Advance());
      if (outcome) return *outcome;
      if (returns != nullptr) ++*returns;
    }
    return Fail(ErrorCode::kBusy, "it does not end");
  }
  Result<CompileOutcome> Tune(int64_t second_ns, int* returns = nullptr) {
    CompileWorkshop workshop = TimedWorkshop(second_ns);
    return RunJob(Product(PlanTier::kTuned), workshop, returns);
  }
  Plan Stored(const PlanKey& key) { return DecodePlan(Record(key).plan).value(); }

  int timed_ = 0;
};

TEST_F(TunedJobTest, TakesTheFastestFormsAndKeepsWhatWasMeasured) {
  int returns = 0;
  const Result<CompileOutcome> tuned = Tune(700, &returns);
  ASSERT_TRUE(tuned.has_value()) << ToString(tuned.error());
  EXPECT_FALSE(tuned->reply.already_there);
  EXPECT_GE(timed_, 2);
  EXPECT_EQ(returns, timed_ - 1) << "other work comes between two kernels";
  EXPECT_EQ(tuned->kernels_timed, static_cast<uint32_t>(timed_));
  EXPECT_EQ(tuned->forms_taken, static_cast<uint32_t>(timed_));
  const Plan plan = Stored(tuned->reply.plan_key);
  EXPECT_TRUE(plan.tuned);
  EXPECT_EQ(ComputePlanKey(plan), tuned->reply.plan_key);
  ASSERT_EQ(plan.tuning.size(), static_cast<size_t>(timed_));
  for (const KernelTuning& tuning : plan.tuning) {
    EXPECT_EQ(tuning.chosen, 1);
    EXPECT_EQ(tuning.choices.at(0).ns, 1000);
    EXPECT_EQ(tuning.choices.at(1).ns, 700);
    EXPECT_NE(tuning.choices.at(0).what, tuning.choices.at(1).what);
    bool used = false;
    for (const PlanStep& step : plan.steps)
      if (const auto* kernel = std::get_if<KernelStep>(&step.step);
          kernel != nullptr && kernel->kernel == tuning.kernel)
        used |= step.label.ends_with(tuning.choices.at(1).what);
    EXPECT_TRUE(used) << tuning.choices.at(1).what;
  }
  // The winners are validated and signed as any kernel.
  EXPECT_EQ(tuned->reply.kernels_compiled, tuned->reply.kernels);
  EXPECT_EQ(Record(tuned->reply.plan_key).evidence.validation, ValidationKind::kExecuted);
  EXPECT_EQ(Stat("leases"), 0u);
}

TEST_F(TunedJobTest, AnotherReplicaWithOtherTimesFindsWhatTheFleetAgreedOn) {
  const Result<CompileOutcome> tuned = Tune(700);
  ASSERT_TRUE(tuned.has_value()) << ToString(tuned.error());
  const int timed = timed_;
  const Result<CompileOutcome> again = Tune(5000);
  ASSERT_TRUE(again.has_value()) << ToString(again.error());
  EXPECT_TRUE(again->reply.already_there);
  EXPECT_EQ(again->reply.plan_key, tuned->reply.plan_key);
  EXPECT_EQ(timed_, timed) << "nothing is measured twice";
}

TEST_F(TunedJobTest, WhileAnotherReplicaMeasuresNothingIsTimed) {
  CompileWorkshop workshop = TimedWorkshop(700);
  Plan plan =
      DecodePlan(
          LowerAnswerFrom(
              compilers_->Submit(LowerFrame(EncodeCompileRequest(Product(PlanTier::kTuned)).payload), 0).get().value())
              .value()
              .plan)
          .value();
  ASSERT_TRUE(Claim(cache::ClaimKind::kPlan, ComputePlanKey(plan), "another"));
  CompileJob job(Product(PlanTier::kTuned), workshop, std::make_shared<JobControl>());
  for (int i = 0; i < 3; ++i) {
    const auto outcome = job.Advance();
    ASSERT_TRUE(outcome.has_value()) << ToString(outcome.error());
    EXPECT_FALSE(outcome->has_value());
  }
  EXPECT_EQ(timed_, 0);
}

TEST_F(TunedJobTest, AFormMustGainMoreThanChance) {
  const Result<CompileOutcome> tuned = Tune(985);
  ASSERT_TRUE(tuned.has_value()) << ToString(tuned.error());
  EXPECT_EQ(tuned->forms_taken, 0u);
  for (const KernelTuning& tuning : Stored(tuned->reply.plan_key).tuning) EXPECT_EQ(tuning.chosen, 0);
  EXPECT_EQ(FastestForm({1000, 985, 971}), 0u);
  EXPECT_EQ(FastestForm({1000, 985, 969}), 2u);
  EXPECT_EQ(FastestForm({1000, 0, -1}), 0u) << "times that were not measured";
}

TEST_F(TunedJobTest, IsAnotherPlanThanTheOneOfTheSameGuard) {
  const Result<CompileOutcome> tuned = Tune(700);
  ASSERT_TRUE(tuned.has_value()) << ToString(tuned.error());
  CompileWorkshop workshop = Workshop();
  const Result<CompileOutcome> generic = RunJob(Product(PlanTier::kGeneric), workshop);
  ASSERT_TRUE(generic.has_value()) << ToString(generic.error());
  EXPECT_NE(generic->reply.plan_key, tuned->reply.plan_key);
  const Plan plan = Stored(generic->reply.plan_key);
  EXPECT_FALSE(plan.tuned);
  EXPECT_EQ(plan.guard, Stored(tuned->reply.plan_key).guard);
}

TEST_F(TunedJobTest, AHostOfAnotherTargetRefusesAndSaysWhy) {
  CompileWorkshop workshop = Workshop();
  workshop.host = Target::kX86V4;
  const Result<CompileOutcome> refused = RunJob(Product(PlanTier::kTuned), workshop);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kTargetMismatch);
  EXPECT_NE(refused.error().message.find("this compile service runs on x86-64-v4"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(Published().empty());
}

TEST_F(TunedJobTest, ASegmentWithoutAnythingToChooseIsRefused) {
  CompileWorkshop workshop = TimedWorkshop(700);
  CompileRequest request = Request();
  request.tier = PlanTier::kTuned;
  EXPECT_EQ(RunJob(request, workshop).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(timed_, 0);
  EXPECT_EQ(Stat("leases"), 0u);
}

TEST_F(TunedJobTest, AFailedMeasurementGivesTheLeaseBack) {
  CompileWorkshop workshop = TimedWorkshop(700);
  workshop.time_kernel = [](const TimeJob&) -> Result<TimeAnswer> { return Fail(ErrorCode::kBusy, "no core is idle"); };
  EXPECT_EQ(RunJob(Product(PlanTier::kTuned), workshop).error().code, ErrorCode::kBusy);
  EXPECT_EQ(Stat("leases"), 0u);
  EXPECT_TRUE(Published().empty());
}

TEST_F(TunedJobTest, AValidationChildTimesForRealOnTheHostsOwnTarget) {
  if (HostTargets().empty()) GTEST_SKIP() << "no kernels are made for this processor";
  CompileWorkshop workshop = Workshop();
  CompileRequest request = Product(PlanTier::kTuned);
  request.target = InfoOf(HostTargets().front()).name;
  const Result<CompileOutcome> tuned = RunJob(request, workshop);
  ASSERT_TRUE(tuned.has_value()) << ToString(tuned.error());
  for (const KernelTuning& tuning : Stored(tuned->reply.plan_key).tuning)
    for (const TunedChoice& choice : tuning.choices) EXPECT_GT(choice.ns, 0) << choice.what;
}

TEST(PriorityOf, TuningIsBelowEverythingElse) {
  CompileRequest request;
  request.tier = PlanTier::kGeneric;
  EXPECT_GT(PriorityOf(request), kTunedPriority);
  request.priority = 9;
  EXPECT_EQ(PriorityOf(request), 9u);
  request.tier = PlanTier::kTuned;
  EXPECT_EQ(PriorityOf(request), kTunedPriority) << "whatever it says";
}

}  // namespace
}  // namespace kiln
