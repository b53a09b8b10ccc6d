// Plans that the store or a signer list takes back, whenever that comes.
#include "tests/vm-worker/tiering/fake_fleet.h"

namespace kiln {
namespace {

using testing::ReluPlan;
using testing::ReluSegment;
using testing::SteppedWorker;

struct Withdrawal {
  const char* name;
  void (*happen)(SteppedWorker& worker, const PlanKey& key);
};

const Withdrawal kWithdrawals[] = {
    {"quarantine",
     [](SteppedWorker& worker, const PlanKey& key) {
       worker.fleet.quarantined.insert(key);
       worker.fleet.Announce(cache::ChangeKind::kQuarantine, key, ReluSegment().id);
     }},
    {"purge",
     [](SteppedWorker& worker, const PlanKey& key) {
       worker.fleet.plans.erase(key);
       worker.fleet.Announce(cache::ChangeKind::kPurge, key, ReluSegment().id);
     }},
    {"signer revoked",
     [](SteppedWorker& worker, const PlanKey&) {
       worker.fleet.revoked = SignPublicKey{};
       worker.tiers.OnSignersChanged();
     }},
    {"quarantine that the log does not tell any more",
     [](SteppedWorker& worker, const PlanKey& key) {
       worker.fleet.quarantined.insert(key);
       worker.fleet.LoseLog();
     }},
};

// Rounds of which each third one is followed by the answer to the read of the change log that is under way: between
// them a plan is asked for and fetched.
void StepWithSlowLog(SteppedWorker& worker, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    worker.clock.now_ns += 2'000'000'000;
    worker.tiers.OnNewHead();
    worker.tiers.Step();
    if (i % 3 == 0) worker.fleet.ReleaseLogs();
  }
}

TEST(WithdrawnPlans, WhatIsTakenBackWhileItIsFetchedIsNotUsed) {
  for (const uint32_t proven_runs : {3u, 0u})
    for (const Withdrawal& withdrawal : kWithdrawals) {
      SCOPED_TRACE(withdrawal.name);
      SteppedWorker worker;
      worker.fleet.can_compile = false;
      worker.Live(3'000);
      worker.fleet.hold_log = true;
      const PlanKey key = worker.fleet.Publish(ReluPlan(0, 4096), proven_runs);
      bool happened = false;
      worker.fleet.after_fetch = [&] {
        happened = worker.fleet.LogsHeld() > 0;
        withdrawal.happen(worker, key);
        worker.fleet.ReleaseLogs();
      };
      StepWithSlowLog(worker, 10);
      ASSERT_TRUE(happened);
      worker.fleet.hold_log = false;
      worker.Live(10'000);
      EXPECT_EQ(worker.ByPlan(), 0u);
      EXPECT_TRUE(worker.Status().shadowing.empty());
    }
}

TEST(WithdrawnPlans, WhatIsPublishedAgainWhileTheOldRecordIsFetchedIsFetchedAgain) {
  SteppedWorker worker;
  worker.fleet.can_compile = false;
  worker.Live(3'000);
  worker.fleet.hold_log = true;
  worker.fleet.Publish(ReluPlan(0, 4096), 3);
  worker.fleet.after_fetch = [&] {
    ASSERT_EQ(worker.fleet.LogsHeld(), 1u);
    worker.fleet.Publish(ReluPlan(0, 4096), 3, {}, 1);
    worker.fleet.ReleaseLogs();
  };
  StepWithSlowLog(worker, 10);
  worker.fleet.hold_log = false;
  worker.Live(3'000);
  EXPECT_EQ(worker.fleet.fetches_asked, 2);
  EXPECT_GT(worker.ByPlan(), 0u);
}

TEST(WithdrawnPlans, AQuarantineInAGapOfTheLogIsFound) {
  SteppedWorker worker;
  worker.Live(2'000);
  ASSERT_GT(worker.ByPlan(), 0u);
  worker.fleet.can_compile = false;
  worker.fleet.quarantined.insert(worker.fleet.plans.begin()->first);
  worker.fleet.LoseLog();
  worker.Live(4'000);
  const uint64_t before = worker.ByPlan();
  worker.Live(10'000);
  EXPECT_EQ(worker.ByPlan(), before);
  EXPECT_EQ(worker.Status().reason, MissReason::kQuarantined);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(WithdrawnPlans, AQuarantineInAGapIsFoundThoughTheStoreFailsWhenItIsAsked) {
  SteppedWorker worker;
  worker.Live(2'000);
  worker.fleet.can_compile = false;
  worker.fleet.quarantined.insert(worker.fleet.plans.begin()->first);
  worker.fleet.LoseLog();
  worker.fleet.standing_down = true;
  worker.Live(20'000);
  EXPECT_FALSE(worker.Status().published.empty()) << "nobody has said anything against it yet";
  worker.fleet.standing_down = false;
  worker.Live(90'000, 1'000);
  EXPECT_TRUE(worker.Status().published.empty());
}

TEST(WithdrawnPlans, AQuarantineBeforeTheFirstReadOfTheLogIsFound) {
  SteppedWorker worker;
  worker.fleet.can_compile = false;
  worker.fleet.hold_log = true;
  const PlanKey key = worker.fleet.Publish(ReluPlan(0, 4096), 3);
  worker.Live(1'000);
  ASSERT_GT(worker.ByPlan(), 0u);
  worker.fleet.quarantined.insert(key);
  worker.fleet.Announce(cache::ChangeKind::kQuarantine, key, ReluSegment().id);
  worker.fleet.hold_log = false;
  worker.fleet.ReleaseLogs();
  worker.Live(1'000);
  const uint64_t before = worker.ByPlan();
  worker.Live(5'000);
  EXPECT_EQ(worker.ByPlan(), before);
}

// However the worker learns of it, and whatever goes wrong beside it meanwhile.
TEST(WithdrawnPlans, AQuarantineIsTheReasonOfTheCallsThatItLeavesToTheInterpreter) {
  struct Case {
    const char* name;
    void (*bring_about)(SteppedWorker&);
  };
  static constexpr auto kQuarantine = [](SteppedWorker& worker, const PlanKey& key) {
    worker.fleet.quarantined.insert(key);
    worker.fleet.Announce(cache::ChangeKind::kQuarantine, key, ReluSegment().id);
  };
  const Case cases[] = {
      {"before the worker asked for the plan",
       [](SteppedWorker& worker) { worker.fleet.quarantined.insert(worker.fleet.Publish(ReluPlan(0, 4096), 3)); }},
      {"while it answers",
       [](SteppedWorker& worker) {
         worker.Live(2'000);
         ASSERT_GT(worker.ByPlan(), 0u);
         kQuarantine(worker, worker.fleet.plans.begin()->first);
       }},
      {"found in a shadow run here",
       [](SteppedWorker& worker) { worker.fleet.Publish(ReluPlan(0, 4096, TensorOp::kAbs)); }},
      {"and then the services are away for a while",
       [](SteppedWorker& worker) {
         worker.Live(2'000);
         kQuarantine(worker, worker.fleet.plans.begin()->first);
         worker.Live(4'000);
         worker.fleet.down = true;
         worker.Live(100'000, 1'000);
         EXPECT_EQ(worker.Status().reason, MissReason::kNoService);
         worker.fleet.down = false;
       }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    SteppedWorker worker;
    c.bring_about(worker);
    worker.Live(150'000, 1'000);
    EXPECT_TRUE(worker.Status().published.empty());
    EXPECT_EQ(worker.Status().reason, MissReason::kQuarantined) << worker.Status().detail;
    EXPECT_EQ(worker.Status().trouble, MissReason::kQuarantined);
    EXPECT_FALSE(worker.Status().detail.empty());
    const MissLedger before = worker.tiers.Stats().misses;
    worker.Live(20'000, 1'000);
    const MissLedger after = worker.tiers.Stats().misses;
    const auto booked = [&](MissReason reason) {
      return after.calls[static_cast<size_t>(reason)] - before.calls[static_cast<size_t>(reason)];
    };
    EXPECT_GE(booked(MissReason::kQuarantined), 18u) << "but for a call while it is asked for again";
    EXPECT_EQ(booked(MissReason::kCompileFailed), 0u);
    EXPECT_EQ(worker.wrong_answers, 0u);
  }
}

TEST(WithdrawnPlans, ALiftedQuarantineIsNoReasonAnyMore) {
  SteppedWorker worker;
  const PlanKey key = worker.fleet.Publish(ReluPlan(0, 4096), 3);
  worker.fleet.quarantined.insert(key);
  worker.Live(100'000, 1'000);
  ASSERT_EQ(worker.Status().reason, MissReason::kQuarantined);
  worker.fleet.can_compile = false;
  worker.fleet.plans.clear();  // evicted meanwhile: nothing comes in its place
  worker.fleet.quarantined.clear();
  worker.fleet.Announce(cache::ChangeKind::kUnquarantine, key, ReluSegment().id);
  worker.Live(5'000);
  EXPECT_EQ(worker.Status().reason, MissReason::kCold);
  EXPECT_TRUE(worker.Status().detail.empty()) << worker.Status().detail;
}

TEST(WithdrawnPlans, AMarkThatOutlivedItsPlanNamesNoSegmentAndItsLiftingIsHeardAllTheSame) {
  SteppedWorker worker;
  const PlanKey key = worker.fleet.Publish(ReluPlan(0, 4096), 3);
  worker.fleet.quarantined.insert(key);
  worker.Live(100'000, 1'000);
  ASSERT_EQ(worker.Status().reason, MissReason::kQuarantined);
  worker.fleet.plans.clear();
  worker.fleet.quarantined.clear();
  worker.fleet.Announce(cache::ChangeKind::kUnquarantine, key, {});
  worker.tiers.OnNewHead();
  worker.Live(1'000);
  EXPECT_EQ(worker.Status().published, std::vector{key}) << "compiled again, at once";
}

TEST(WithdrawnPlans, APlanThatTheStoreEvictedOrLostStaysInUse) {
  SteppedWorker worker;
  worker.Live(2'000);
  worker.fleet.can_compile = false;
  worker.fleet.plans.clear();
  worker.fleet.LoseLog();
  worker.Live(5'000);
  EXPECT_EQ(worker.Status().published.size(), 1u);
  EXPECT_EQ(worker.tiers.Stats().quarantined, 0u);
}

TEST(WithdrawnPlans, TheDisksCopyGoesWithThem) {
  for (const cache::ChangeKind kind : {cache::ChangeKind::kQuarantine, cache::ChangeKind::kPurge}) {
    SteppedWorker worker;
    worker.Live(2'000);
    worker.fleet.can_compile = false;
    const PlanKey key = worker.fleet.plans.begin()->first;
    worker.fleet.Announce(kind, key, ReluSegment().id);
    worker.Live(3'000);
    EXPECT_EQ(worker.fleet.forgotten, std::set<PlanKey>{key});
  }
}

TEST(WithdrawnPlans, AWorkerThatIsThousandsOfChangesBehindReadsThemOneAfterAnother) {
  SteppedWorker worker;
  worker.Live(2'000);
  worker.fleet.can_compile = false;
  worker.fleet.log_entries_max = 10;
  const PlanKey key = worker.fleet.plans.begin()->first;
  for (int i = 0; i < 1'000; ++i)
    worker.fleet.Announce(cache::ChangeKind::kEvict, HashBytes(std::vector<uint8_t>{1}), ReluSegment().id);
  worker.fleet.Announce(cache::ChangeKind::kQuarantine, key, ReluSegment().id);
  worker.Live(2'200);
  EXPECT_TRUE(worker.Status().published.empty()) << "not a hundred polls later";
}

}  // namespace
}  // namespace kiln
