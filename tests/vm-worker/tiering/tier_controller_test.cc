// The control thread's decisions, step by step, over injected time.
#include "vm-worker/tiering/tier_controller.h"

#include "tests/support/held_memory.h"
#include "tests/vm-worker/tiering/fake_fleet.h"

namespace kiln {
namespace {

using testing::ReluPlan;
using testing::ReluSegment;
using testing::SteppedWorker;

constexpr int64_t kHourMs = 3'600'000;

Plan WrongPlan() {
  return ReluPlan(0, 4096, TensorOp::kAbs);
}

// Relu's plan with a kernel of these bytes of code.
Plan KernelPlan(const std::vector<uint8_t>& blob) {
  Plan plan = ReluPlan(0, 4096);
  plan.kernels = {HashBytes(blob)};
  plan.steps = {{KernelStep{0, {0, 1}, {}, Dim::Const(1), Dim::Const(1), Dim::Const(0)}, {0}, "kernel"}};
  return plan;
}

// Memory that no machine has: its shadow runs can decide nothing.
Plan UndecidablePlan() {
  Plan plan = ReluPlan(0, 4096);
  for (int i = 0; i < 256; ++i) plan.buffers.push_back({Dim::Const(int64_t{1} << 39), 0, 0});
  return plan;
}

TEST(TierController, AHotSegmentGetsOnePlanThatAnswersAfterItsShadowRuns) {
  SteppedWorker worker;
  worker.Live(2'000);
  EXPECT_EQ(worker.fleet.compiles_asked, 1);
  EXPECT_EQ(worker.fleet.compile_tiers.at(0), PlanTier::kGeneric);
  EXPECT_GT(worker.ByPlan(), 20u);
  EXPECT_EQ(worker.tiers.Stats().shadow_clean, 3u);
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kShadowOk), 1u);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

// 16 of 20 calls a second have three rows; a call takes 2 ms.
void LiveMixed(SteppedWorker& worker, int64_t seconds) {
  for (int64_t s = 0; s < seconds; ++s)
    for (int64_t i = 0; i < 20; ++i) worker.Live(46, 46, i % 5 == 0 ? 4 + i / 5 : 3);
}

TEST(TierController, ADominantShapeGetsAnExactPlanAndTheOthersStayOnTheGenericOne) {
  SteppedWorker worker;
  worker.call_clock.reading_ns = 2'000'000;
  LiveMixed(worker, 60);
  EXPECT_EQ(worker.fleet.compile_tiers, (std::vector{PlanTier::kGeneric, PlanTier::kExact}));
  const SegmentStatus status = worker.Status();
  EXPECT_EQ(status.published.size(), 2u);
  ASSERT_TRUE(status.top_shape);
  EXPECT_EQ(status.top_shape->symbol_values, (std::vector<int64_t>{3}));
  EXPECT_GT(status.top_shape->times.exact.calls, 500u) << "it answers";
  EXPECT_GT(status.top_shape->times.general.calls, 0u);
  EXPECT_NEAR(status.top_shape->times.exact.PerCall(), 2e6, 1e3);
  EXPECT_LE(worker.Interpreted(), 10u) << "neither plan kept requests in the interpreter for its shadow runs";
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(TierController, ShapesThatComeSeldomShareTheGenericPlan) {
  SteppedWorker worker;
  worker.call_clock.reading_ns = 2'000'000;
  for (int64_t i = 0; i < 6'000; ++i) worker.Live(46, 46, 1 + i % 60);
  EXPECT_EQ(worker.fleet.compile_tiers, (std::vector{PlanTier::kGeneric}));
  EXPECT_EQ(worker.wrong_answers, 0u);
}

// More shapes than a profile holds come before the one that then makes every other call.
TEST(TierController, AShapeThatTurnsFrequentLateIsSeen) {
  SteppedWorker worker;
  worker.call_clock.reading_ns = 2'000'000;
  for (int64_t n = 1; n <= 1'200; ++n) worker.Live(46, 46, 10 + n);
  for (int64_t n = 1; n <= 600; ++n) {
    worker.Live(46, 46, 3);
    worker.Live(46, 46, 1'300 + n);
  }
  EXPECT_EQ(worker.fleet.compile_tiers, (std::vector{PlanTier::kGeneric, PlanTier::kExact}));
  EXPECT_EQ(worker.Status().top_shape->symbol_values, (std::vector<int64_t>{3}));
  EXPECT_EQ(worker.wrong_answers, 0u);
}

// Nobody waits for the interpreter on behalf of a plan that is checked beside one that answers.
TEST(TierController, AWrongExactPlanIsFoundInTheBackground) {
  SteppedWorker worker;
  worker.Live(2'000);
  const uint64_t interpreted = worker.Interpreted();
  worker.fleet.Publish(ReluPlan(3, 3, TensorOp::kAbs));
  worker.Live(10'000);
  EXPECT_EQ(worker.Interpreted(), interpreted);
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kMismatch), 1u);
  EXPECT_EQ(worker.Status().published.size(), 1u);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(TierController, AWrongPlanIsReportedOnceAndAskedForEverMoreSeldom) {
  SteppedWorker worker;
  const PlanKey key = worker.fleet.Publish(WrongPlan());
  worker.Live(2 * kHourMs, 1'000);
  EXPECT_EQ(worker.wrong_answers, 0u);
  EXPECT_EQ(worker.ByPlan(), 0u);
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kMismatch), 1u);
  EXPECT_LE(worker.fleet.compiles_asked, 20) << "in two hours; the pause doubles up to ten minutes";
  EXPECT_GE(worker.fleet.compiles_asked, 5) << "but it is asked again";
  EXPECT_LE(worker.fleet.fetches_asked, 21);
  EXPECT_LE(worker.fleet.variants_asked, 3);
  EXPECT_EQ(worker.Status().reason, MissReason::kQuarantined);

  worker.fleet.Publish(ReluPlan(0, 4096));
  EXPECT_EQ(worker.fleet.plans.size(), 1u) << "another record under the key " << key.ShortHex();
  const uint64_t before = worker.ByPlan();
  worker.Live(5'000);
  EXPECT_GT(worker.ByPlan(), before) << "it is met at once";
}

TEST(TierController, ARecordOfNobodyBelievedIsNotFetchedOverAndOver) {
  SteppedWorker worker;
  worker.fleet.revoked = SignPublicKey{};
  worker.fleet.Publish(ReluPlan(0, 4096));
  worker.Live(kHourMs, 1'000);
  EXPECT_LE(worker.fleet.fetches_asked, 16);
  EXPECT_LE(worker.fleet.compiles_asked, 16);
  EXPECT_EQ(worker.ByPlan(), 0u);
}

TEST(TierController, WhatTheStoreQuarantinesIsDroppedAndComesBackWhenItIsLifted) {
  SteppedWorker worker;
  worker.Live(2'000);
  const PlanKey key = worker.fleet.plans.begin()->first;
  worker.fleet.can_compile = false;
  worker.fleet.quarantined.insert(key);
  worker.fleet.Announce(cache::ChangeKind::kQuarantine, key, ReluSegment().id);
  worker.Live(3'000);
  const uint64_t dropped = worker.ByPlan();
  worker.Live(5'000);
  EXPECT_EQ(worker.ByPlan(), dropped);
  EXPECT_EQ(worker.Status().reason, MissReason::kQuarantined);
  worker.fleet.quarantined.clear();
  worker.fleet.Announce(cache::ChangeKind::kUnquarantine, key, ReluSegment().id);
  worker.Live(5'000);
  EXPECT_GT(worker.ByPlan(), dropped);
}

TEST(TierController, AfterAPurgeThePlanIsCompiledAgainAndUsed) {
  SteppedWorker worker;
  worker.Live(2'000);
  const PlanKey key = worker.fleet.plans.begin()->first;
  worker.fleet.plans.clear();
  worker.fleet.Announce(cache::ChangeKind::kPurge, key, ReluSegment().id);
  const std::weak_ptr<const LinkedPlan> purged = worker.Status().plans.at(0).plan;
  worker.Live(10'000);
  EXPECT_EQ(worker.fleet.compiles_asked, 2);
  const uint64_t before = worker.ByPlan();
  worker.Live(1'000);
  EXPECT_GT(worker.ByPlan(), before);
  EXPECT_TRUE(purged.expired());
}

TEST(TierController, ARetiredPlanIsFreedThoughNoThreadComesByAgain) {
  SteppedWorker worker;
  worker.Live(2'000);
  const PlanKey key = worker.fleet.plans.begin()->first;
  const std::weak_ptr<const LinkedPlan> plan = worker.Status().plans.at(0).plan;
  ASSERT_FALSE(plan.expired());
  worker.fleet.Announce(cache::ChangeKind::kQuarantine, key, ReluSegment().id);
  for (int i = 0; i < 5; ++i) {
    worker.clock.now_ns += 2'000'000'000;
    worker.tiers.Step();
  }
  EXPECT_TRUE(plan.expired());
  worker.Run(3);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(TierController, AnUnloadedModelIsFreedThoughItsThreadsAreIdle) {
  SteppedWorker worker;
  worker.Live(2'000);
  const std::weak_ptr<Model> model = worker.model;
  const std::weak_ptr<const LinkedPlan> plan = worker.Status().plans.at(0).plan;
  worker.tiers.RemoveModel(worker.model);
  worker.model.reset();
  worker.tiers.Step();
  EXPECT_TRUE(model.expired());
  EXPECT_TRUE(plan.expired());
}

TEST(TierController, WhatAnUnloadedModelAskedForIsCancelledUnlessAnotherModelWaitsForIt) {
  SteppedWorker worker;
  worker.Live(200);  // the store has answered that there is nothing
  worker.fleet.hung = true;
  worker.Live(2'000);
  ASSERT_EQ(worker.fleet.compiles_asked, 1);
  const auto second = std::make_shared<Model>("second", SteppedWorker::Relu(), worker.epochs);
  ModelThread& thread = second->AddThread();
  const auto observer = worker.tiers.MakeObserver(second, thread);
  Dispatcher dispatcher{second->runtimes(), thread.counters, *observer, {.budget = worker.tiers.options().budget}};
  const auto step = [&](bool hung) {
    worker.fleet.hung = hung;
    worker.clock.now_ns += 1'000'000'000;
    while (worker.tiers.Step()) {
    }
  };
  worker.tiers.AddModel(second);
  step(false);
  Tensor x = Tensor::Allocate(DType::kF32, {3, 4});
  std::ranges::fill(x.values<float>(), 0.5f);
  for (int run = 0; run < 20; ++run) {
    EpochScope scope(worker.epochs, worker.reader);
    RunOptions options;
    options.hook = &dispatcher;
    ASSERT_TRUE(worker.context.Run(second->program(), {&x.ref, 1}, options).has_value());
  }
  step(true);
  ASSERT_EQ(worker.fleet.compiles_asked, 2);
  ASSERT_EQ(worker.fleet.asked[0], worker.fleet.asked[1]) << "both models wait for one request";
  worker.tiers.RemoveModel(worker.model);
  EXPECT_TRUE(worker.fleet.cancelled.empty());
  worker.tiers.RemoveModel(second);
  EXPECT_EQ(worker.fleet.cancelled, std::vector<Digest>{worker.fleet.asked[0]});

  SteppedWorker answered;
  answered.Live(2'000);
  ASSERT_EQ(answered.fleet.compiles_asked, 1);
  answered.tiers.RemoveModel(answered.model);
  EXPECT_TRUE(answered.fleet.cancelled.empty());
}

TEST(TierController, AHungStoreHoldsUpNeitherLoadingNorSteps) {
  SteppedWorker worker;
  worker.fleet.hung = true;
  worker.Live(60'000, 500);
  EXPECT_EQ(worker.fleet.variants_asked, 1) << "one call at a time";
  const auto second = std::make_shared<Model>("second", SteppedWorker::Relu(), worker.epochs);
  worker.tiers.AddModel(second);
  EXPECT_EQ(worker.tiers.Segments(*second).size(), 1u);
  worker.tiers.RemoveModel(second);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(TierController, AnAbsentFleetIsAskedSeldomAndUsedWhenItIsBack) {
  SteppedWorker worker;
  worker.fleet.down = true;
  worker.Live(kHourMs / 2, 1'000);
  EXPECT_LE(worker.fleet.variants_asked, 45) << "in half an hour, a minute apart at last";
  EXPECT_EQ(worker.Status().reason, MissReason::kNoService);
  worker.fleet.down = false;
  worker.Live(90'000, 1'000);
  EXPECT_GT(worker.ByPlan(), 0u);
}

TEST(TierController, NoCallIsInterpretedForAPlanInShadowBesideOneThatAnswers) {
  SteppedWorker worker;
  worker.Live(2'000);
  worker.fleet.can_compile = false;
  worker.fleet.Publish(ReluPlan(3, 3));
  const auto shadowing = [&] { return !worker.Status().shadowing.empty(); };
  for (int i = 0; i < 10 && !shadowing(); ++i) {
    worker.clock.now_ns += 2'000'000'000;
    worker.tiers.Step();
  }
  ASSERT_TRUE(shadowing());
  const uint64_t before = worker.Interpreted();
  for (int i = 0; i < 200; ++i) worker.Run(3);
  EXPECT_EQ(worker.Interpreted() - before, 0u) << "they were answered by the plan that is published";
  worker.Live(1'000);
  EXPECT_EQ(worker.Status().published.size(), 2u) << "and its samples were taken from them";
}

TEST(TierController, WhatTheShadowQueueHasNoRoomForIsSampledLater) {
  TierOptions options;
  options.shadow.queue_max = 1;
  SteppedWorker worker(options);
  worker.Live(2'000);
  worker.fleet.can_compile = false;
  worker.fleet.Publish(ReluPlan(3, 3));
  for (int i = 0; i < 10 && worker.Status().shadowing.empty(); ++i) {
    worker.clock.now_ns += 2'000'000'000;
    worker.tiers.Step();
  }
  const uint64_t before = worker.Interpreted();
  for (int i = 0; i < 50; ++i) worker.Run(3);
  EXPECT_EQ(worker.Interpreted() - before, 0u);
  EXPECT_EQ(worker.Status().published.size(), 1u);
  worker.Live(1'000);
  EXPECT_EQ(worker.Status().published.size(), 2u);
}

TEST(TierController, APlanWhoseShadowRunsDecideNothingIsGivenUpAndCounted) {
  TierOptions options;
  options.undecided_max = 5;
  options.policy.exact_calls = 1'000'000;
  SteppedWorker worker(options);
  worker.fleet.Publish(UndecidablePlan());
  worker.Live(3'000);
  EXPECT_EQ(worker.tiers.Stats().shadow_undecided, 5u);
  EXPECT_EQ(worker.Status().reason, MissReason::kUndecided);
  EXPECT_TRUE(worker.fleet.reports.empty());
  worker.Live(kHourMs, 1'000);
  EXPECT_LE(worker.tiers.Stats().shadow_undecided, 5u * 16u);
  EXPECT_GT(worker.tiers.Stats().misses.calls[static_cast<size_t>(MissReason::kUndecided)], 0u);
  EXPECT_EQ(worker.ByPlan(), 0u);
}

TEST(TierController, APlanThatOthersProvedAnswersAtOnceAndIsSampled) {
  TierOptions options;
  options.sample_every = 4;
  SteppedWorker worker(options);
  worker.fleet.Publish(ReluPlan(0, 4096), 3);
  worker.Live(5'000);
  EXPECT_LE(worker.Interpreted(), 2u);
  EXPECT_GE(worker.tiers.Stats().samples_clean, 10u);
  EXPECT_EQ(worker.tiers.Stats().shadow_clean, 0u);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(TierController, ASampleThatDiffersWithdrawsAPlanThatOthersProved) {
  SteppedWorker worker;
  worker.fleet.Publish(WrongPlan(), 3);
  worker.Live(3'000);
  EXPECT_EQ(worker.wrong_answers, 1u) << "the first answer is a sample";
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kMismatch), 1u);
  EXPECT_EQ(worker.Status().reason, MissReason::kQuarantined);
}

TEST(TierController, ThousandsOfShapesLeaveMemoryFlat) {
  MemoryBudget budget(int64_t{1} << 30);
  SteppedWorker worker(budget);
  worker.Live(2'000);
  // In an order that mixes small and large.
  const auto run = [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      worker.Run(i * 1237 % 4093 + 1);
      if (i % 50 == 0)
        while (worker.tiers.Step()) {
        }
    }
  };
  run(1, 2'000);
  const int64_t used = budget.used(), held = HeldBytes();
  EXPECT_GT(budget.used(MemoryUse::kPlans), 0);
  EXPECT_GT(budget.used(MemoryUse::kProfiles), 0);
  run(2'000, 4'000);
  EXPECT_LE(budget.used(), used + used / 20);
  EXPECT_LE(HeldBytes(), held + (int64_t{8} << 20));
  EXPECT_GT(worker.ByPlan(), 3'900u);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(TierController, WhenMemoryIsTightPlansLeaveAndCallsAreInterpreted) {
  int64_t needed = 0;
  {
    MemoryBudget budget(int64_t{1} << 30);
    SteppedWorker worker(budget);
    worker.Live(2'000);
    needed = budget.used();
    EXPECT_EQ(worker.tiers.Stats().evicted, 0u);
  }
  MemoryBudget budget(needed + needed / 100);
  SteppedWorker worker(budget);
  worker.Live(60'000, 500);
  EXPECT_GE(worker.tiers.Stats().evicted, 1u);
  EXPECT_LE(worker.tiers.Stats().evicted, 10u) << "it comes back ever more seldom";
  EXPECT_EQ(worker.tiers.Stats().quarantined, 0u);
  EXPECT_EQ(worker.Status().reason, MissReason::kNoMemory);
  EXPECT_EQ(worker.wrong_answers, 0u);
  EXPECT_LE(budget.used(), budget.limit());
}

TEST(TierController, WhatAnEarlierProcessFaultedOnIsToldTheStoreOnceItHears) {
  testing::FakeFleet fleet;
  const PlanKey key = HashBytes(std::vector<uint8_t>{1});
  fleet.untold = {{key, HashBytes(std::vector<uint8_t>{2})}};
  fleet.down = true;
  testing::ManualClock clock;
  EpochDomain epochs;
  TierOptions options;
  options.own_threads = false;
  options.clock = &clock;
  TierController tiers(epochs, &fleet, InterpretRecipe, options);
  const auto live = [&] {
    for (int i = 0; i < 5; ++i) {
      clock.now_ns += 3'000'000'000;
      while (tiers.Step()) {
      }
    }
  };
  live();
  EXPECT_TRUE(fleet.told.empty());
  fleet.down = false;
  live();
  EXPECT_EQ(fleet.told, std::set<PlanKey>{key});
  EXPECT_EQ(fleet.reports.back().kind, cache::ReportKind::kFault);
  const size_t reports = fleet.reports.size();
  live();
  EXPECT_EQ(fleet.reports.size(), reports);
}

TEST(TierController, PlansOfASignerWhoIsRevokedLeaveAndComeBackWithHim) {
  SteppedWorker worker;
  worker.Live(2'000);
  worker.fleet.can_compile = false;
  worker.fleet.revoked = SignPublicKey{};
  worker.tiers.OnSignersChanged();
  worker.Live(200);
  const uint64_t before = worker.ByPlan();
  worker.Live(5'000);
  EXPECT_EQ(worker.ByPlan(), before);
  worker.fleet.revoked.reset();
  worker.tiers.OnSignersChanged();
  worker.Live(5'000);
  EXPECT_GT(worker.ByPlan(), before);
}

#ifdef __x86_64__
// A store through a pointer that is not the kernel's own: `canary` of this process is where it would go.
std::atomic<uint64_t> canary{42};

std::vector<uint8_t> WildStore() {
  std::vector<uint8_t> code = {0x48, 0xb8};  // mov rax, &canary
  const auto address = reinterpret_cast<uintptr_t>(&canary);
  for (int byte = 0; byte < 8; ++byte) code.push_back(static_cast<uint8_t>(address >> (8 * byte)));
  for (uint8_t byte : {0x48, 0xc7, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc3}) code.push_back(byte);  // mov [rax], 0; ret
  return code;
}

TEST(TierController, AWildStoreOfAPlanInShadowReachesNothingOfTheWorker) {
  SteppedWorker worker;
  const std::vector<uint8_t> blob = BuildKernelBlob(HostTargets().front(), 0, WildStore());
  worker.fleet.Publish(KernelPlan(blob), 0, {blob});
  worker.Live(5'000);
  EXPECT_EQ(canary, 42u);
  EXPECT_EQ(worker.wrong_answers, 0u);
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kMismatch), 1u);
}

TEST(TierController, AFaultingPlanCostsAChildProcessAndIsReported) {
  for (const std::vector<uint8_t>& code : {std::vector<uint8_t>{0x0f, 0x0b},                     // ud2
                                           std::vector<uint8_t>{0x31, 0xc0, 0x88, 0x00, 0xc3},   // store through null
                                           std::vector<uint8_t>{0x31, 0xc0, 0xf7, 0xf0, 0xc3}})  // divide by zero
  {
    SteppedWorker worker;
    const std::vector<uint8_t> blob = BuildKernelBlob(HostTargets().front(), 0, code);
    worker.fleet.Publish(KernelPlan(blob), 0, {blob});
    worker.Live(60'000, 500);
    EXPECT_EQ(worker.wrong_answers, 0u);
    EXPECT_EQ(worker.ByPlan(), 0u);
    EXPECT_EQ(worker.tiers.Stats().shadow_faults, 1u);
    EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kFault), 1u);
    EXPECT_EQ(worker.fleet.marks.size(), 1u) << "a restart does not meet it again";
    EXPECT_EQ(worker.fleet.told.size(), 1u);
  }
}
#endif

}  // namespace
}  // namespace kiln
