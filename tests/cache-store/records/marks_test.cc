// Quarantine, reports, purge, and the change log that carries them to the fleet.
#include "common/base/limits.h"
#include "tests/cache-store/records/fixture.h"

namespace kiln::store {
namespace {

using cache::ChangeKind;
using cache::ReportKind;

TEST_F(RecordsTest, QuarantineHidesAPlanFromTheFleetForGood) {
  ASSERT_TRUE(Publish(1, {10}));
  ASSERT_TRUE(Publish(2, {10}));
  ASSERT_TRUE(Do(cache::QuarantineRequest{D(1), true}));
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(VariantKeys(), std::vector<Digest>{D(2)});
    EXPECT_EQ(Do(cache::GetPlanRequest{D(1)}).error().code, ErrorCode::kQuarantined);
    EXPECT_EQ(Publish(1, {10}).error().code, ErrorCode::kQuarantined);
    Open();
  }
  ASSERT_TRUE(Do(cache::QuarantineRequest{D(1), false}));
  EXPECT_EQ(VariantKeys().size(), 2u);
}

TEST_F(RecordsTest, AnotherCodeGeneratorMayReplaceAQuarantinedPlan) {
  ASSERT_TRUE(Publish(1, {10}));
  ASSERT_TRUE(Do(cache::QuarantineRequest{D(1), true}));
  PlanRecord fixed = Plan(1, {10});
  fixed.provenance.codegen_id = D(78);
  EXPECT_TRUE(PublishRecord(fixed)->stored);
  EXPECT_TRUE(HasPlan(1));
}

TEST_F(RecordsTest, MarkOutlivesAPurgeSoThatTheSameBadPlanCannotComeBack) {
  ASSERT_TRUE(Publish(1, {10}));
  ASSERT_TRUE(Do(cache::QuarantineRequest{D(1), true}));
  EXPECT_EQ(Do(cache::PurgeRequest{cache::PurgeKind::kPlan, D(1)})->plans, 1u);
  EXPECT_EQ(Publish(1, {10}).error().code, ErrorCode::kQuarantined);
  // It is seen before anything is compiled, found in the list, and can be lifted.
  EXPECT_EQ(Do(cache::GetPlanRequest{D(1)}).error().code, ErrorCode::kQuarantined);
  ASSERT_TRUE(Publish(2, {10}));
  const auto plans = Do(cache::ListRequest{})->plans;
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0].plan_key, D(1));
  EXPECT_TRUE(plans[0].quarantined);
  EXPECT_EQ(plans[0].codegen_id, D(77));
  EXPECT_EQ(Do(cache::ListRequest{.after = D(1)})->plans.size(), 1u);
  EXPECT_EQ(Do(cache::ListRequest{.limit = 1})->plans.size(), 1u);
  ASSERT_TRUE(Do(cache::QuarantineRequest{D(1), false}));
  EXPECT_EQ(Do(cache::GetPlanRequest{D(1)}).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(Publish(1, {10}));
}

TEST_F(RecordsTest, OneMachinesReportsAreNotEnoughTwoMachinesAreAndTheCompileServicesIs) {
  ASSERT_TRUE(Publish(1, {10}));
  ASSERT_TRUE(Publish(2, {10}));
  const auto report = [&](uint8_t plan, const std::string& name, const std::string& machine, Role role) {
    return Do(cache::ReportRequest{D(plan), ReportKind::kMismatch, 1, name, "softmax differs"}, role, machine)
        ->quarantined;
  };
  EXPECT_FALSE(report(1, "w1", "key@10.0.0.1", Role::kWorker));
  EXPECT_FALSE(report(1, "w1", "key@10.0.0.1", Role::kWorker));  // the same again
  EXPECT_FALSE(report(1, "w2", "key@10.0.0.1", Role::kWorker)) << "restarted under another name";
  EXPECT_FALSE(report(1, "w3", "key@10.0.0.1", Role::kOperator)) << "no authority either";
  EXPECT_TRUE(report(1, "w1", "key@10.0.0.2", Role::kWorker));
  EXPECT_TRUE(report(2, "c", "key@10.0.0.1", Role::kCompile));
  EXPECT_TRUE(VariantKeys().empty());
}

TEST_F(RecordsTest, WitnessesOutliveARestart) {
  ASSERT_TRUE(Publish(1, {10}));
  const auto report = [&](ReportKind kind, uint32_t runs, const std::string& machine) {
    return *Do(cache::ReportRequest{D(1), kind, runs, "w", ""}, Role::kWorker, machine);
  };
  EXPECT_EQ(report(ReportKind::kShadowOk, 100, "a").shadow_runs, limits::kCleanRunsPerMachineMax);
  Open();
  EXPECT_EQ(report(ReportKind::kShadowOk, 100, "a").shadow_runs, limits::kCleanRunsPerMachineMax) << "counted before";
  EXPECT_FALSE(report(ReportKind::kMismatch, 1, "a").quarantined);
  Open();
  EXPECT_FALSE(report(ReportKind::kMismatch, 1, "a").quarantined) << "the same machine";
  EXPECT_TRUE(report(ReportKind::kMismatch, 1, "b").quarantined);
}

TEST_F(RecordsTest, AWitnessThatCouldNotBeWrittenIsWrittenLater) {
  ASSERT_TRUE(Publish(1, {10}));
  const auto report = [&](const std::string& machine) {
    return Do(cache::ReportRequest{D(1), ReportKind::kMismatch, 1, "w", ""}, Role::kWorker, machine)->quarantined;
  };
  disk_.writes_until_full = 0;
  EXPECT_FALSE(report("a"));
  disk_.writes_until_full = -1;
  records_->Tick();
  Open();
  EXPECT_TRUE(report("b")) << "the second machine";
}

// Workers finish runs of a record after another has taken its place.
TEST_F(RecordsTest, AReportAboutAReplacedRecordCountsForNothing) {
  ASSERT_TRUE(Publish(1, {10}));
  const Digest old_contents = HashBytes(Plan(1, {10}).plan);
  const auto report = [&](ReportKind kind, const Digest& contents, const std::string& machine) {
    return *Do(cache::ReportRequest{D(1), kind, 2, "w", "", contents}, Role::kWorker, machine);
  };
  for (const std::string machine : {"a", "b"}) report(ReportKind::kMismatch, old_contents, machine);
  PlanRecord fixed = Plan(1, {10});
  fixed.provenance.codegen_id = D(78);
  fixed.plan = Bytes(50, 99);
  ASSERT_TRUE(PublishRecord(fixed)->stored);
  for (const std::string machine : {"a", "b", "c"}) {
    EXPECT_FALSE(report(ReportKind::kMismatch, old_contents, machine).quarantined);
    EXPECT_EQ(report(ReportKind::kShadowOk, old_contents, machine).shadow_runs, 1u) << "what the record itself says";
  }
  EXPECT_EQ(records_->Count(Counter::reports_outdated), 6u);
  const Digest contents = HashBytes(fixed.plan);
  Open();
  EXPECT_EQ(report(ReportKind::kShadowOk, contents, "a").shadow_runs, 2u);
  EXPECT_EQ(report(ReportKind::kShadowOk, {}, "b").shadow_runs, 4u) << "of a worker that names none";
  report(ReportKind::kMismatch, contents, "a");
  EXPECT_TRUE(report(ReportKind::kMismatch, contents, "b").quarantined);
}

TEST_F(RecordsTest, CleanShadowRunsAddUpAndAreKept) {
  ASSERT_TRUE(Publish(1, {10}));
  const auto report = [&](uint32_t runs, const std::string& machine) {
    return Do(cache::ReportRequest{D(1), ReportKind::kShadowOk, runs, "w", ""}, Role::kWorker, machine)->shadow_runs;
  };
  EXPECT_EQ(report(3, "a"), 3u);
  EXPECT_EQ(report(2, "b"), 5u);
  records_->Tick();
  Open();
  EXPECT_EQ(Do(cache::VariantsRequest{D(200), {}})->variants[0].evidence.shadow_runs, 5u);
  EXPECT_EQ(Do(cache::ReportRequest{D(9), ReportKind::kShadowOk, 2, "w", ""}).error().code, ErrorCode::kNotFound);
}

TEST_F(RecordsTest, OneMachineCannotClaimCleanRunsWithoutEnd) {
  ASSERT_TRUE(Publish(1, {10}));
  const auto report = [&](uint32_t runs, const std::string& machine) {
    return Do(cache::ReportRequest{D(1), ReportKind::kShadowOk, runs, "w", ""}, Role::kWorker, machine)->shadow_runs;
  };
  EXPECT_EQ(report(1'000'000, "a"), limits::kCleanRunsPerMachineMax);
  EXPECT_EQ(report(UINT32_MAX, "a"), limits::kCleanRunsPerMachineMax);
  EXPECT_EQ(report(3, "b"), limits::kCleanRunsPerMachineMax + 3);
}

TEST_F(RecordsTest, ABadReportTakesTheWordOfOthersBack) {
  ASSERT_TRUE(Publish(1, {10}));
  ASSERT_TRUE(Do(cache::ReportRequest{D(1), ReportKind::kShadowOk, 30, "w", ""}));
  EXPECT_FALSE(Do(cache::ReportRequest{D(1), ReportKind::kFault, 1, "w", ""}, Role::kWorker)->quarantined);
  Open();
  EXPECT_EQ(Do(cache::VariantsRequest{D(200), {}})->variants.at(0).evidence.shadow_runs, 1u)
      << "what the record itself says";
}

TEST_F(RecordsTest, PurgeByEachKindRemovesExactlyItsPlans) {
  const auto reset = [&] {
    for (uint8_t number : {1, 2}) ASSERT_TRUE(Publish(number, {10}));
    PlanRecord other = Plan(3, {10});
    other.segment = D(201);
    other.target = "sm_90a";
    other.provenance.codegen_id = D(78);
    ASSERT_TRUE(PublishRecord(other));
  };
  struct Row {
    cache::PurgeRequest request;
    uint64_t plans;
  };
  for (const Row& row : {Row{{cache::PurgeKind::kPlan, D(2)}, 1}, Row{{cache::PurgeKind::kSegment, D(200)}, 2},
                         Row{{cache::PurgeKind::kTarget, {}, "sm_90a"}, 1}, Row{{cache::PurgeKind::kCodegen, D(77)}, 2},
                         Row{{cache::PurgeKind::kCodegen, D(1)}, 0}}) {
    reset();
    cache::PurgeRequest dry = row.request;
    dry.dry_run = true;
    EXPECT_EQ(Do(dry)->plans, row.plans);
    EXPECT_EQ(Do(cache::ListRequest{})->plans.size(), 3u);
    const uint64_t head = records_->head();
    EXPECT_EQ(Do(row.request)->plans, row.plans);
    EXPECT_EQ(Do(cache::ListRequest{})->plans.size(), 3u - row.plans);
    EXPECT_EQ(Changes(head), std::vector<ChangeKind>(row.plans, ChangeKind::kPurge));
    ExpectWhole();
  }
}

TEST_F(RecordsTest, ChangeLogNumbersEveryChangeWithoutGapsAndKeepsThem) {
  const uint64_t start = records_->head();
  ASSERT_TRUE(Publish(1, {10}));
  ASSERT_TRUE(Do(cache::QuarantineRequest{D(1), true}));
  ASSERT_TRUE(Do(cache::PurgeRequest{cache::PurgeKind::kPlan, D(1)}));
  for (int round = 0; round < 2; ++round) {
    const auto reply = Do(cache::ChangeLogRequest{start, 0});
    EXPECT_FALSE(reply->gap);
    EXPECT_EQ(reply->head, start + 3);
    EXPECT_EQ(Changes(start), (std::vector{ChangeKind::kPublish, ChangeKind::kQuarantine, ChangeKind::kPurge}));
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(reply->entries[i].sequence, start + 1 + i);
    EXPECT_EQ(reply->entries[0].segment, D(200));
    EXPECT_EQ(Do(cache::ChangeLogRequest{start, 2})->entries.size(), 2u);
    EXPECT_TRUE(Do(cache::ChangeLogRequest{start + 3, 0})->entries.empty());
    Open();
  }
}

TEST_F(RecordsTest, ReaderOfAnotherStoreOrOneThatFellBehindSeesAGap) {
  ASSERT_TRUE(Publish(1, {10}));
  EXPECT_TRUE(Do(cache::ChangeLogRequest{0, 0})->gap);
  EXPECT_TRUE(Do(cache::ChangeLogRequest{records_->head() + 100, 0})->gap);
  const uint64_t old_head = records_->head();
  disk_.kv = MakeMemoryStore();  // the disk is lost
  clock_.AdvanceMs(60'000);
  Open();
  EXPECT_TRUE(Do(cache::ChangeLogRequest{old_head, 0})->gap);
  EXPECT_GT(records_->head(), old_head);
}

// Without a clean stop the newest numbers may have been lost with the disk's cache, so they are never given out again.
TEST_F(RecordsTest, AfterACrashEveryReaderSeesAGap) {
  ASSERT_TRUE(Publish(1, {10}));
  const uint64_t seen = records_->head();
  disk_.writes_until_full = 0;  // the clean mark is never written
  records_.reset();
  disk_.writes_until_full = -1;
  Open();
  EXPECT_TRUE(Do(cache::ChangeLogRequest{seen, 0})->gap);
  EXPECT_GT(records_->head(), seen);
  EXPECT_TRUE(HasPlan(1));
}

TEST_F(RecordsTest, ChangeLogIsBounded) {
  ASSERT_TRUE(Publish(1, {10}));
  const uint64_t start = records_->head();
  for (size_t i = 0; i < limits::kChangeLogEntriesMax / 2 + 50; ++i) {
    ASSERT_TRUE(Do(cache::QuarantineRequest{D(1), true}));
    ASSERT_TRUE(Do(cache::QuarantineRequest{D(1), false}));
  }
  EXPECT_TRUE(Do(cache::ChangeLogRequest{start, 0})->gap);
  EXPECT_LE(Entries(Space::kChangeLog), limits::kChangeLogEntriesMax);
  EXPECT_FALSE(Do(cache::ChangeLogRequest{records_->head() - limits::kChangeLogEntriesMax, 0})->gap);
}

}  // namespace
}  // namespace kiln::store
