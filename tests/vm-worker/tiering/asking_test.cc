// What a worker asks for again after it came to nothing, and under which reason calls are booked meanwhile.
#include "common/base/transient.h"
#include "tests/support/error_codes.h"
#include "tests/vm-worker/tiering/fake_fleet.h"

namespace kiln {
namespace {

using testing::ReluPlan;
using testing::ReluSegment;
using testing::SteppedWorker;

uint64_t Booked(const SteppedWorker& worker, MissReason reason) {
  return worker.tiers.Stats().misses.calls[static_cast<size_t>(reason)];
}

size_t ExactAsked(const SteppedWorker& worker) {
  return static_cast<size_t>(std::ranges::count(worker.fleet.compile_tiers, PlanTier::kExact));
}

// A worker whose generic plan answers calls of 2 ms, of one shape.
struct DominatedWorker : SteppedWorker {
  DominatedWorker() {
    Live(2'000);
    call_clock.reading_ns = 2'000'000;
  }
};

TEST(Asking, AnExactPlanIsAskedForAgainAfterEveryErrorThatPasses) {
  for (const ErrorCode code : testing::kErrorCodes) {
    SCOPED_TRACE(ErrorCodeName(code));
    DominatedWorker worker;
    worker.fleet.compile_fails = code;
    worker.Live(60'000);
    ASSERT_GE(ExactAsked(worker), 1u);
    const size_t while_it_failed = ExactAsked(worker);
    EXPECT_LE(while_it_failed, 10u);
    if (!IsTransient(code)) {
      EXPECT_EQ(while_it_failed, 1u);
    }
    worker.fleet.compile_fails.reset();
    worker.Live(120'000);
    EXPECT_EQ(worker.Status().published.size(), IsTransient(code) ? 2u : 1u);
  }
}

// Threads hand in what they interpreted before a plan was published when it already answers: no exact plan is worth its
// compilation beside it because of them.
TEST(Asking, AnExactPlanThatIsQuarantinedIsAskedForOnceMoreAndAgainWhenThatIsLifted) {
  DominatedWorker worker;
  worker.Live(30'000);
  ASSERT_EQ(worker.Status().published.size(), 2u);
  const auto exact = std::ranges::find_if(worker.fleet.plans, [](const auto& plan) {
    const SymbolGuard& guard = plan.second.plan.guard.symbols[0];
    return guard.min == guard.max;
  });
  ASSERT_NE(exact, worker.fleet.plans.end());
  const PlanKey key = exact->first;
  worker.fleet.quarantined.insert(key);
  worker.fleet.Announce(cache::ChangeKind::kQuarantine, key, ReluSegment().id);
  worker.tiers.OnNewHead();
  worker.Live(120'000);
  const size_t asked = ExactAsked(worker);
  worker.Live(120'000);
  EXPECT_EQ(ExactAsked(worker), asked);
  EXPECT_EQ(worker.Status().published.size(), 1u);
  // The plan is gone by then, its mark was not.
  worker.fleet.plans.erase(key);
  worker.fleet.quarantined.clear();
  worker.fleet.Announce(cache::ChangeKind::kUnquarantine, key, {});
  worker.tiers.OnNewHead();
  worker.Live(5'000);
  EXPECT_EQ(ExactAsked(worker), asked + 1);
  EXPECT_EQ(worker.Status().published.size(), 2u);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(Asking, CallsOfBeforeThePlanWasPublishedAreNoReasonForAnExactOne) {
  SteppedWorker worker;
  worker.Run(3);
  const auto counted = worker.thread.shapes.Take();
  ASSERT_EQ(counted.at(0).size(), 1u);
  const Signature signature = counted.at(0)[0].signature;
  worker.Live(2'000);
  ASSERT_EQ(worker.Status().published.size(), 1u);
  for (int i = 0; i < 500; ++i) worker.thread.shapes.AddInterpreted(0, signature, 1'000'000);
  worker.Live(5'000);
  EXPECT_EQ(ExactAsked(worker), 0u);
  EXPECT_LT(worker.Status().top_forecast.saved_ns, 1e9);
  // Where no plan answers, the same calls are.
  const PlanKey key = worker.fleet.plans.begin()->first;
  worker.fleet.quarantined.insert(key);
  worker.fleet.Announce(cache::ChangeKind::kQuarantine, key, ReluSegment().id);
  worker.fleet.Publish(ReluPlan(64, 128), 3);
  worker.Live(5'000);
  ASSERT_EQ(worker.Status().published.size(), 1u);
  for (int i = 0; i < 500; ++i) worker.thread.shapes.AddInterpreted(0, signature, 1'000'000);
  worker.Live(100);
  EXPECT_GT(worker.Status().top_forecast.saved_ns, 1e9);
}

// An op may hold the plan for all shapes to fewer than the segment declares.
TEST(Asking, AnExactPlanIsAskedForBesideAGeneralOneThatAnOpHoldsToFewerShapes) {
  SteppedWorker worker;
  worker.fleet.general_holds_for = SymbolGuard{1, 128, 1};
  worker.Live(2'000);
  worker.call_clock.reading_ns = 2'000'000;
  worker.Live(120'000);
  EXPECT_GE(ExactAsked(worker), 1u);
  EXPECT_EQ(worker.Status().published.size(), 2u);
  EXPECT_EQ(std::ranges::count(worker.fleet.compile_tiers, PlanTier::kGeneric), 1);
}

TEST(Asking, AnExactPlanThatLeftForWantOfMemoryComesBackWhenThereIsRoom) {
  MemoryBudget budget(int64_t{64} << 20);
  SteppedWorker worker(budget);
  worker.Live(2'000);
  worker.call_clock.reading_ns = 2'000'000;
  worker.Live(60'000);
  ASSERT_EQ(worker.Status().published.size(), 2u);
  {
    const auto others = MemoryCharge::Take(&budget, MemoryUse::kModels, budget.limit() - budget.used() - 1000);
    ASSERT_TRUE(others.has_value());
    for (int i = 0; i < 20 && !worker.Status().published.empty(); ++i) worker.Live(100);
    ASSERT_TRUE(worker.Status().published.empty()) << "both plans left";
  }
  worker.Live(120'000);
  EXPECT_EQ(worker.Status().published.size(), 2u);
}

TEST(Asking, WhatOtherPlansFailedAtIsNotTheReasonOfAGuardMiss) {
  SteppedWorker worker;
  worker.fleet.can_compile = false;
  worker.fleet.Publish(ReluPlan(1, 8), 3);
  worker.Live(2'000);
  ASSERT_EQ(worker.Status().published.size(), 1u);
  EXPECT_EQ(worker.Status().reason, MissReason::kGuardFailed);
  // The list cannot be read, then it can; another plan turns out to be wrong.
  worker.fleet.down = true;
  worker.fleet.Publish(ReluPlan(9, 16, TensorOp::kAbs));
  worker.Live(10'000);
  EXPECT_EQ(worker.Status().reason, MissReason::kGuardFailed);
  worker.fleet.down = false;
  worker.Live(90'000, 500, 12);
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kMismatch), 1u);
  EXPECT_EQ(worker.Status().reason, MissReason::kGuardFailed);
  const MissLedger before = worker.tiers.Stats().misses;
  worker.Live(1'000, 50, 20);
  const MissLedger after = worker.tiers.Stats().misses;
  for (size_t reason = 0; reason < std::size(after.calls); ++reason)
    EXPECT_EQ(after.calls[reason] - before.calls[reason],
              reason == static_cast<size_t>(MissReason::kGuardFailed) ? 20 : 0)
        << reason;
}

// Workers that ask for tuned plans wherever they have any.
TierOptions AskingForTuned() {
  TierOptions options;
  options.policy.tuned = true;
  options.policy.tuning_ns = 0;
  return options;
}

size_t TunedPublished(const SteppedWorker& worker) {
  return static_cast<size_t>(std::ranges::count_if(
      worker.Status().plans, [](const PlanStatus& plan) { return plan.published && plan.plan->plan().tuned; }));
}

TEST(Asking, ATunedPlanAnswersInPlaceOfTheUntunedOneUntilItIsTakenBack) {
  SteppedWorker worker(AskingForTuned());
  worker.Live(2'000);
  worker.call_clock.reading_ns = 2'000'000;
  worker.Live(60'000);
  const auto& asked = worker.fleet.compile_tiers;
  EXPECT_EQ(std::ranges::count(asked, PlanTier::kTuned), 2) << "beside the general plan, and beside the exact one";
  EXPECT_EQ(TunedPublished(worker), 2u);
  EXPECT_EQ(worker.Status().published.size(), 4u) << "the untuned ones stay at hand";
  EXPECT_EQ(worker.model->runtime(0).slot.plans().size(), 2u);
  for (const auto& [key, stored] : std::map(worker.fleet.plans)) {
    if (!stored.plan.tuned) continue;
    worker.fleet.quarantined.insert(key);
    worker.fleet.Announce(cache::ChangeKind::kQuarantine, key, ReluSegment().id);
  }
  worker.tiers.OnNewHead();
  const uint64_t interpreted = worker.Interpreted();
  worker.Live(5'000);
  EXPECT_EQ(TunedPublished(worker), 0u);
  EXPECT_EQ(worker.model->runtime(0).slot.plans().size(), 2u);
  EXPECT_LE(worker.Interpreted(), interpreted) << "no call is without a plan";
  EXPECT_EQ(worker.wrong_answers, 0u);
}

// Calls of five sizes in turn, 2 ms each, for a policy that is asked to try range plans and expects nothing of exact
// ones.
struct RangeWorker : SteppedWorker {
  RangeWorker() : SteppedWorker(Options()) {
    Live(2'000, 50, 24);
    call_clock.reading_ns = 2'000'000;
  }
  static TierOptions Options() {
    TierOptions options;
    options.policy.range = true;
    options.policy.range_gain = 1;
    options.policy.gain_over_general = 0;
    return options;
  }
  void Turns(int rounds) {
    for (int i = 0; i < rounds; ++i)
      for (int64_t rows : {24, 40, 48, 56, 64}) Live(200, 50, rows);
  }
  size_t Asked() const { return static_cast<size_t>(std::ranges::count(fleet.compile_tiers, PlanTier::kRange)); }
};

TEST(Asking, ARangePlanAnswersTheShapesItHoldsForAndTheGeneralOneTheRest) {
  RangeWorker worker;
  worker.Turns(12);
  EXPECT_EQ(worker.Asked(), 1u);
  const auto plans = worker.model->runtime(0).slot.plans();
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0]->plan().guard.symbols, (std::vector<SymbolGuard>{{16, 64, 8}})) << "before the general one";
  const uint64_t interpreted = worker.Interpreted();
  for (const int64_t rows : {8, 15, 16, 17, 20, 64, 65, 72}) worker.Live(200, 50, rows);
  EXPECT_EQ(worker.Interpreted(), interpreted);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(Asking, ARangePlanThatIsRefusedIsAskedForOnceAndOneOfABusyServiceAgain) {
  for (const ErrorCode code : {ErrorCode::kCompileFailed, ErrorCode::kBusy}) {
    RangeWorker worker;
    worker.fleet.compile_fails = code;
    worker.Turns(12);
    EXPECT_EQ(worker.Asked(), 1u) << ErrorCodeName(code);
    EXPECT_EQ(worker.Status().published.size(), 1u);
    EXPECT_EQ(worker.Status().reason, MissReason::kGuardFailed) << "nothing is wrong with the plans that are there";
    worker.fleet.compile_fails.reset();
    worker.Live(61'000, 1'000, 24);
    worker.Turns(24);
    EXPECT_EQ(worker.Status().published.size(), IsTransient(code) ? 2u : 1u) << ErrorCodeName(code);
  }
}

// A fleet's range plan stands in for its own shapes only.
TEST(Asking, BesideARangePlanOfOthersTheGeneralOneIsStillAskedFor) {
  SteppedWorker worker;
  worker.fleet.Publish(ReluPlan(1, 8), 3);
  worker.Live(2'000);
  EXPECT_TRUE(worker.fleet.compile_tiers.empty());
  worker.Live(2'000, 50, 100);
  ASSERT_FALSE(worker.fleet.compile_tiers.empty());
  EXPECT_EQ(worker.fleet.compile_tiers[0], PlanTier::kGeneric);
  const uint64_t interpreted = worker.Interpreted();
  worker.Live(1'000, 50, 100);
  EXPECT_EQ(worker.Interpreted(), interpreted);
}

TEST(Asking, ATunedPlanHasTheRoomOfTheUntunedOne) {
  TierOptions options = AskingForTuned();
  options.policy.plans_max = 2;
  SteppedWorker worker(options);
  worker.Live(2'000);
  worker.call_clock.reading_ns = 2'000'000;
  worker.Live(60'000);
  EXPECT_EQ(TunedPublished(worker), 2u);
  worker.Live(60'000, 50, 5);
  EXPECT_EQ(ExactAsked(worker), 1u) << "plans for the same calls are one of two";
}

TEST(Asking, APlanThatFoundNoRoomIsTakenOnceThereIsSome) {
  TierOptions options;
  options.policy.plans_max = 2;
  SteppedWorker worker(options);
  worker.fleet.can_compile = false;
  const PlanKey generic = worker.fleet.Publish(ReluPlan(0, 4096), 3), first = worker.fleet.Publish(ReluPlan(3, 3), 3);
  worker.Live(1'000);
  ASSERT_EQ(worker.Status().published.size(), 2u);
  const PlanKey second = worker.fleet.Publish(ReluPlan(5, 5), 3);
  worker.Live(20'000);
  EXPECT_EQ(std::ranges::count(worker.Status().published, second), 0);
  EXPECT_NE(worker.Status().reason, MissReason::kQuarantined) << "nothing is wrong with it";
  worker.fleet.plans.erase(first);
  worker.fleet.Announce(cache::ChangeKind::kPurge, first, ReluSegment().id);
  worker.Live(60'000);
  std::vector<PlanKey> published = worker.Status().published, both = {generic, second};
  std::ranges::sort(both);
  EXPECT_EQ(published, both);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(Asking, ATunedPlanThatIsRefusedIsAskedForOnceAndChangesNothing) {
  SteppedWorker worker(AskingForTuned());
  worker.Live(1'000);
  worker.fleet.compile_fails = ErrorCode::kUnsupported;
  worker.call_clock.reading_ns = 2'000'000;
  worker.Live(60'000);
  EXPECT_EQ(std::ranges::count(worker.fleet.compile_tiers, PlanTier::kTuned), 1);
  EXPECT_NE(worker.Status().tuned_refusal, "");
  EXPECT_EQ(worker.Status().published.size(), 1u);
  EXPECT_GT(worker.ByPlan(), 0u);
}

// Replicas of the compile service may be hosts of several targets: one that refuses is not all of them.
TEST(Asking, ATunedPlanThatAReplicaOnAnotherTargetRefusesIsAskedForOnceMore) {
  for (const bool another_takes_it : {true, false}) {
    SteppedWorker worker(AskingForTuned());
    worker.Live(1'000);
    worker.fleet.compile_fails = ErrorCode::kTargetMismatch;
    worker.call_clock.reading_ns = 2'000'000;
    const auto tuned_asked = [&] { return std::ranges::count(worker.fleet.compile_tiers, PlanTier::kTuned); };
    for (int i = 0; i < 400 && tuned_asked() < 1; ++i) worker.Live(1'000);
    ASSERT_EQ(tuned_asked(), 1);
    EXPECT_NE(worker.Status().tuned_refusal, "");
    if (another_takes_it) worker.fleet.compile_fails.reset();
    worker.Live(150'000);
    if (another_takes_it) {
      EXPECT_GE(TunedPublished(worker), 1u);
    } else {
      EXPECT_EQ(tuned_asked(), 2);
      EXPECT_EQ(TunedPublished(worker), 0u);
    }
    EXPECT_EQ(worker.wrong_answers, 0u);
  }
}

TEST(Asking, ACallThatAPlanAdmitsAndThatHasNoMemoryForItIsBookedAsThatAndTriedAgain) {
  MemoryBudget budget(int64_t{1} << 20);
  SteppedWorker worker(budget);
  worker.Live(2'000);
  ASSERT_EQ(worker.Status().published.size(), 1u);
  {
    const auto others = MemoryCharge::Take(&budget, MemoryUse::kModels, budget.limit() - budget.used() - 8);
    ASSERT_TRUE(others.has_value());
    for (int i = 0; i < 10; ++i) worker.Run(100);  // no round of the control thread between: the plan stays
    budget.TakeRefusals();
  }
  worker.tiers.Step();
  EXPECT_EQ(Booked(worker, MissReason::kNotRun), 10u);
  EXPECT_EQ(worker.model->SumCounters(0).guard_misses, 0u);
  const uint64_t before = worker.ByPlan();
  worker.clock.now_ns += 6'000'000'000;
  for (int i = 0; i < 10; ++i) worker.Run(100);
  EXPECT_EQ(worker.ByPlan(), before + 10) << "there is room again";
}

TEST(Asking, ASampleThatDoesNotFitDropsNoPlan) {
  MemoryBudget budget(int64_t{1} << 20);
  SteppedWorker worker(budget);
  worker.Live(2'000, 50, 4'000);
  ASSERT_EQ(worker.Status().published.size(), 1u);
  worker.fleet.can_compile = false;
  const auto others = MemoryCharge::Take(&budget, MemoryUse::kModels, budget.limit() * 89 / 100 - budget.used());
  ASSERT_TRUE(others.has_value());
  worker.fleet.Publish(ReluPlan(4'000, 4'000));  // inputs and outputs of a sample are 125 KiB
  worker.Live(30'000, 50, 4'000);
  EXPECT_EQ(worker.Status().shadowing.size(), 1u);
  EXPECT_EQ(worker.Status().published.size(), 1u);
  EXPECT_EQ(worker.tiers.Stats().evicted, 0u);
}

TEST(Asking, APlanWhoseWishesWereTakenForAnotherIsStillProven) {
  SteppedWorker worker;
  worker.fleet.can_compile = false;
  worker.Live(1'000);
  worker.fleet.Publish(ReluPlan(0, 4096));
  for (int i = 0; i < 10 && worker.Status().shadowing.empty(); ++i) {
    worker.clock.now_ns += 2'000'000'000;
    worker.tiers.Step();
  }
  ASSERT_EQ(worker.Status().shadowing.size(), 1u);
  // As a thread does that loaded the plan in front before it gave way to this one.
  worker.model->runtime(0).shadow_wanted = 1;
  worker.Live(5'000);
  EXPECT_EQ(worker.Status().published.size(), 1u);
}

TEST(Asking, AWorkerOfAHigherRungAsksForAPlanOfItsOwnAndPrefersIt) {
  if (HostTargets().size() < 2) GTEST_SKIP() << "this host has one rung";
  SteppedWorker worker;
  Plan lower = ReluPlan(0, 4096);
  lower.target = InfoOf(HostTargets().back()).name;
  const PlanKey lower_key = worker.fleet.Publish(lower, 3);
  worker.Live(10'000);
  EXPECT_EQ(worker.fleet.compiles_asked, 1) << "and not again once it has one";
  ASSERT_EQ(worker.Status().published.size(), 2u);
  const PlanKey own = ComputePlanKey(ReluPlan(0, 4096));
  const auto plans = worker.model->runtime(0).slot.plans();
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0]->key(), own);
  EXPECT_EQ(plans[1]->key(), lower_key);
  EXPECT_EQ(worker.wrong_answers, 0u);

  SteppedWorker alone;
  alone.fleet.can_compile = false;
  alone.fleet.Publish(lower, 3);
  alone.Live(2'000);
  EXPECT_GT(alone.ByPlan(), 0u) << "without a compile service a lower rung is what there is";
}

TEST(Throttling, ASegmentThatAskedForAllItMayWaitsAndSaysSo) {
  TierOptions options;
  options.rates.segment = {2, 1.0 / 3600};
  SteppedWorker worker(options);
  worker.fleet.compile_fails = ErrorCode::kCompileFailed;
  worker.Live(600'000, 1'000);
  EXPECT_EQ(worker.fleet.compiles_asked, 2);
  EXPECT_EQ(worker.Status().reason, MissReason::kThrottled);
  EXPECT_GT(worker.Status().retry_in_ms, 2'000'000);
  EXPECT_EQ(worker.tiers.Stats().throttled, 1u);
  EXPECT_GT(worker.tiers.Stats().misses.calls[static_cast<size_t>(MissReason::kThrottled)], 400u);
  worker.fleet.compile_fails.reset();
  worker.Live(3'600'000, 10'000);
  EXPECT_EQ(worker.fleet.compiles_asked, 3);
  EXPECT_GT(worker.ByPlan(), 0u);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(Throttling, ModelAndWorkerHaveBucketsToo) {
  for (BucketSize RequestRates::* const bucket : {&RequestRates::model, &RequestRates::worker}) {
    TierOptions options;
    options.rates.*bucket = {1, 1e-9};
    SteppedWorker worker(options);
    worker.call_clock.reading_ns = 2'000'000;
    worker.Live(30'000, 46, 3);
    EXPECT_EQ(worker.fleet.compile_tiers, (std::vector{PlanTier::kGeneric})) << "an exact plan waits";
    EXPECT_EQ(worker.tiers.Stats().throttled, 1u);
    EXPECT_GT(worker.ByPlan(), 0u);
  }
  SteppedWorker worker;
  worker.call_clock.reading_ns = 2'000'000;
  worker.Live(30'000, 46, 3);
  EXPECT_EQ(worker.fleet.compile_tiers, (std::vector{PlanTier::kGeneric, PlanTier::kExact})) << "with what is usual";
  EXPECT_EQ(worker.tiers.Stats().throttled, 0u);
}

TEST(Throttling, WhatTheServiceCannotDoNowCostsNothing) {
  TierOptions options;
  options.rates.segment = {1, 1e-9};
  SteppedWorker worker(options);
  worker.fleet.compile_fails = ErrorCode::kBusy;
  worker.Live(300'000, 1'000);
  EXPECT_GE(worker.fleet.compiles_asked, 5);
  EXPECT_EQ(worker.Status().reason, MissReason::kNoService);
  worker.fleet.compile_fails.reset();
  worker.Live(70'000, 1'000);
  EXPECT_GT(worker.ByPlan(), 0u);
}

}  // namespace
}  // namespace kiln
