// CompileService on the wire, with a real store and real children: whose end ends what, and who waits for whom.
#include "compile-service/service/compile_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "common/compile_api/op_table.h"
#include "tests/compile-service/service/service_fixture.h"

namespace kiln {
namespace {

using CompileServiceTest = CompileServiceFixture;

TEST_F(CompileServiceTest, ARequestThatNobodyWaitsForEndsAndFreesItsThread) {
  UseHungValidator();
  Serve(1);
  const CompileRequest request = Request();
  auto mine = Ask(*first_, request);
  ASSERT_TRUE(Soon([&] { return compile_service_->Stats().running == 1; }));
  auto other = Ask(*second_, request);
  ASSERT_TRUE(Soon([&] { return compile_service_->Stats().joined == 1; }));
  CancelCompile(*first_, request.Key());
  EXPECT_EQ(mine.get().error().code, ErrorCode::kCancelled);
  EXPECT_EQ(compile_service_->Stats().running, 1u) << "somebody else still waits";
  CancelCompile(*second_, request.Key());
  EXPECT_EQ(other.get().error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(Soon([&] { return compile_service_->Stats().running == 0; }));
  EXPECT_EQ(compile_service_->Stats().cancelled, 1u);
  EXPECT_EQ(compile_service_->Stats().failures, 0u);
  EXPECT_EQ(Stat("leases"), 0u);
}

TEST_F(CompileServiceTest, ADeadlineEndsTheWorkToo) {
  UseHungValidator();
  Serve(1);
  EXPECT_EQ(Ask(*first_, Request(), 1'000).get().error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(Soon([&] { return compile_service_->Stats().running == 0; }));
  EXPECT_EQ(Stat("leases"), 0u);
}

TEST_F(CompileServiceTest, APlanThatAnotherReplicaCompilesHoldsUpNobodyElse) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  const PlanKey key = ComputePlanKey(DecodePlan(Lowered().plan).value());
  ASSERT_TRUE(Claim(cache::ClaimKind::kPlan, key, "another"));
  Serve(1);
  auto held = Ask(*first_, Request());
  const Result<CompileReply> other = Ask(*first_, Request("Abs")).get();
  ASSERT_TRUE(other.has_value()) << ToString(other.error());
  EXPECT_EQ(held.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  Release(cache::ClaimKind::kPlan, key, "another");
  const Result<CompileReply> reply = held.get();
  ASSERT_TRUE(reply.has_value()) << ToString(reply.error());
  EXPECT_EQ(reply->plan_key, key);
}

TEST_F(CompileServiceTest, PingStatsAndCancelAreAnsweredHoweverManyRequestsWait) {
  UseHungValidator();
  Serve(1);
  std::vector<std::future<Result<CompileReply>>> waiting;
  for (size_t i = 0; i < kSlots + 8; ++i) waiting.push_back(Ask(*first_, Seen(static_cast<int64_t>(i) + 1)));
  ASSERT_TRUE(Soon([&] { return server_->Stats().pending == kSlots; }));
  for (const CompileMethod method : {CompileMethod::kPing, CompileMethod::kStats}) {
    const auto reply = Call(method);
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
  }
  CancelCompile(*first_, Seen(1).Key());
  EXPECT_EQ(waiting[0].get().error().code, ErrorCode::kCancelled);
}

TEST_F(CompileServiceTest, TheQueueIsBoundedInRequestsAndInBytes) {
  UseHungValidator();
  CompileServiceOptions options{.queue_max = 2, .job_threads = 1};
  Serve(options);
  std::vector<std::future<Result<CompileReply>>> waiting;
  const auto ask = [&](int64_t width) { waiting.push_back(Ask(*first_, Seen(width))); };
  ask(1);
  ASSERT_TRUE(Soon([&] { return compile_service_->Stats().running == 1; }));
  ask(2);
  ask(3);
  ASSERT_TRUE(Soon([&] { return compile_service_->Stats().queued == 2; }));
  EXPECT_EQ(Ask(*first_, Seen(4)).get().error().code, ErrorCode::kBusy);
  compile_service_->Stop(0);
  for (auto& answer : waiting) EXPECT_FALSE(answer.get().has_value());
  first_.reset();
  second_.reset();
  server_.reset();
  options = {.queue_max = 100, .bytes_max = 2 * Seen(1).segment.size(), .job_threads = 1};
  Serve(options);
  waiting.clear();
  ask(1);
  ask(2);
  EXPECT_EQ(Ask(*first_, Seen(3)).get().error().code, ErrorCode::kBusy);
}

TEST_F(CompileServiceTest, StoppingAnswersWhatRunsWhatWaitsAndWhatIsHeld) {
  UseHungValidator();
  Serve(1);
  ASSERT_TRUE(Claim(cache::ClaimKind::kPlan, ComputePlanKey(DecodePlan(Lowered("Abs").plan).value()), "another"));
  std::vector<std::future<Result<CompileReply>>> waiting;
  waiting.push_back(Ask(*first_, Request("Abs")));
  ASSERT_TRUE(Soon([&] {
    const CompileStats stats = compile_service_->Stats();
    return stats.queued == 1 && stats.running == 0;
  }));
  waiting.push_back(Ask(*first_, Request()));
  ASSERT_TRUE(Soon([&] { return compile_service_->Stats().running == 1 && Stat("leases") == 3; }));
  waiting.push_back(Ask(*second_, Request("Exp")));
  ASSERT_TRUE(Soon([&] { return compile_service_->Stats().queued == 2; }));
  server_->Drain();
  compile_service_->Stop(50);
  for (auto& answer : waiting) EXPECT_EQ(answer.get().error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(server_->Settle(kWaitMs));
  EXPECT_EQ(Stat("leases"), 1u) << "of the other replica";
}

TEST_F(CompileServiceTest, ARunningRequestMayFinishWithinTheGrace) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  Serve(1);
  auto answer = Ask(*first_, Request());
  ASSERT_TRUE(Soon([&] { return compile_service_->Stats().running == 1 || compile_service_->Stats().plans == 1; }));
  compile_service_->Stop(kWaitMs);
  const Result<CompileReply> reply = answer.get();
  EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
}

// The normal start of a fleet: workers saw different widths, and ask for one generic plan.
TEST_F(CompileServiceTest, OnePlanIsCompiledOnceWhateverWidthsWereSeen) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  Serve(3);
  std::vector<std::future<Result<CompileReply>>> waiting;
  for (const int64_t width : {64, 65, 100}) waiting.push_back(Ask(*first_, Seen(width)));
  int made = 0;
  for (auto& answer : waiting) {
    const Result<CompileReply> reply = answer.get();
    ASSERT_TRUE(reply.has_value()) << ToString(reply.error());
    made += reply->already_there ? 0 : 1;
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(compile_service_->Stats().plans, 1u);
  EXPECT_EQ(Stat("plans_known"), 0u) << "nothing was published twice";
}

TEST_F(CompileServiceTest, ARequestsOwnFailureIsRememberedTheStoresIsNot) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  CompileServiceOptions options;
  options.failure_backoff_ms = 3'600'000;
  Serve(options);
  CompileRequest impossible = Request();
  impossible.target = "no-such-target";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask(*first_, impossible).get().error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(compile_service_->Stats().failures, 1u) << "and twice from memory";
  service_.reset();  // the store
  for (uint64_t failures = 2; failures < 4; ++failures) {
    const Result<CompileReply> reply = Ask(*first_, Request()).get();
    ASSERT_FALSE(reply.has_value());
    EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable) << ToString(reply.error());
    EXPECT_EQ(compile_service_->Stats().failures, failures) << "it was tried again";
  }
}

// Throws once on the `countdown`th reading after it was set.
struct ThrowingClock final : Clock {
  int64_t NowNs() const override {
    ++readings;
    if (countdown.load() > 0 && countdown.fetch_sub(1) == 1) throw std::bad_alloc();
    return SystemClock().NowNs();
  }
  int64_t WallMs() const override { return SystemClock().WallMs(); }
  mutable std::atomic<int> readings{0}, countdown{0};
};

TEST_F(CompileServiceTest, AJobThatRunsOutOfMemoryCostsItsRequestAndNothingElse) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  const ThrowingClock clock;
  clock_ = &clock;
  Serve(1);
  ASSERT_TRUE(Soon([&] { return clock.readings > 0; })) << "the job thread waits for work";
  // The first is of the request's arrival, the second of the thread that takes it, the third of the job's beginning.
  clock.countdown = 3;
  EXPECT_EQ(Ask(*first_, Request()).get().error().code, ErrorCode::kResourceExhausted);
  const Result<CompileReply> again = Ask(*first_, Request()).get();
  EXPECT_TRUE(again.has_value()) << ToString(again.error());
  EXPECT_EQ(compile_service_->Stats().running, 0u);
  compile_service_->Stop(0);
}

// Real time, and what tests add to it.
struct ShiftedClock final : Clock {
  int64_t NowNs() const override { return SystemClock().NowNs() + shift_ns.load(); }
  int64_t WallMs() const override { return SystemClock().WallMs(); }
  std::atomic<int64_t> shift_ns{0};
};

TEST_F(CompileServiceTest, AKeyThatKeepsFailingIsTriedEverMoreSeldom) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  ShiftedClock clock;
  clock_ = &clock;
  Serve(CompileServiceOptions{.failure_backoff_ms = 60'000, .failure_backoff_max_ms = 600'000});
  CompileRequest impossible = Request();
  impossible.target = "no-such-target";
  std::vector<int> tried_at;
  for (int minute = 0; minute < 60; ++minute) {
    const uint64_t before = compile_service_->Stats().failures;
    EXPECT_EQ(Ask(*first_, impossible, 86'000'000).get().error().code, ErrorCode::kInvalidArgument);
    if (compile_service_->Stats().failures > before) tried_at.push_back(minute);
    clock.shift_ns += int64_t{61'000} * 1'000'000;
  }
  ASSERT_GE(tried_at.size(), 6u);
  EXPECT_EQ((std::vector<int>(tried_at.begin(), tried_at.begin() + 4)), (std::vector<int>{0, 1, 3, 7}));
  EXPECT_LE(tried_at.size(), 10u) << "at most every ten minutes in the end";
  EXPECT_LE(tried_at[5] - tried_at[4], 10);
  compile_service_->Stop(0);
}

// The store's word counts, not what the service remembers of it.
TEST_F(CompileServiceTest, APlanIsMadeAsSoonAsItsQuarantineIsLifted) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  Serve(CompileServiceOptions{.failure_backoff_ms = 3'600'000});
  const PlanKey key = Ask(*first_, Request()).get()->plan_key;
  const auto quarantine = [&](bool on) {
    ASSERT_TRUE(client_->CallSync(cache::QuarantineRequest{key, on}, kWaitMs).has_value());
  };
  quarantine(true);
  // The mark outlives the plan.
  ASSERT_TRUE(
      client_->CallSync(cache::PurgeRequest{.kind = cache::PurgeKind::kPlan, .digest = key}, kWaitMs).has_value());
  for (int i = 0; i < 3; ++i) {
    const auto refused = Ask(*first_, Request()).get();
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::kQuarantined) << ToString(refused.error());
  }
  EXPECT_EQ(compile_service_->Stats().failures, 1u) << "it is lowered once";
  quarantine(false);
  const auto made = Ask(*first_, Request()).get();
  ASSERT_TRUE(made.has_value()) << ToString(made.error());
  EXPECT_EQ(made->plan_key, key);
  EXPECT_FALSE(made->already_there);
  quarantine(true);
  EXPECT_FALSE(Ask(*first_, Request()).get().has_value());
  EXPECT_EQ(compile_service_->Stats().failures, 2u);
  service_.reset();  // the store: then nobody can say
  EXPECT_EQ(Ask(*first_, Request()).get().error().code, ErrorCode::kUnavailable);
}

TEST_F(CompileServiceTest, OneMachineMayAskForSoMuchAndNoMore) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  ShiftedClock clock;
  clock_ = &clock;
  Serve(CompileServiceOptions{.client_rate = {2, 0.01}});
  EXPECT_TRUE(Ask(*first_, Seen(1)).get().has_value());
  EXPECT_TRUE(Ask(*second_, Seen(2)).get().has_value());
  for (RpcClient* client : {first_.get(), second_.get()}) {  // connections of one machine
    const auto refused = Ask(*client, Seen(3)).get();
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  }
  EXPECT_EQ(compile_service_->Stats().throttled, 2u);
  clock.shift_ns += int64_t{101} * 1'000'000'000;
  EXPECT_TRUE(Ask(*first_, Seen(3), 86'000'000).get().has_value());
  EXPECT_FALSE(Ask(*first_, Seen(4), 86'000'000).get().has_value());
  compile_service_->Stop(0);
}

TEST_F(CompileServiceTest, WhatADeadlineEndsIsNoFailure) {
  UseHungValidator();
  Serve(1);
  EXPECT_FALSE(Ask(*first_, Request(), 300).get().has_value());
  EXPECT_TRUE(Soon([&] { return compile_service_->Stats().cancelled == 1; }));
  EXPECT_EQ(compile_service_->Stats().failures, 0u);
}

// A thread is free for it all the same: what else runs would disturb what it measures.
TEST_F(CompileServiceTest, TuningWaitsUntilNothingElseIsInWork) {
  UseHungValidator();
  CompileWorkshop workshop = Workshop();
  workshop.host = Target::kX86V2;
  std::atomic<int> timed{0};
  workshop.time_kernel = [&](const TimeJob&) -> Result<TimeAnswer> {
    ++timed;
    return Fail(ErrorCode::kBusy, "enough is known");
  };
  Serve(std::move(workshop), 2);
  const CompileRequest request = Request();
  auto first = Ask(*first_, request);
  ASSERT_TRUE(Soon([&] { return compile_service_->Stats().running == 1; }));
  auto tuned = Ask(*second_, Product(PlanTier::kTuned));
  ASSERT_TRUE(Soon([&] { return compile_service_->Stats().queued == 1; }));
  EXPECT_EQ(tuned.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EXPECT_EQ(timed.load(), 0);
  EXPECT_EQ(compile_service_->Stats().running, 1u);
  CancelCompile(*first_, request.Key());
  EXPECT_EQ(tuned.get().error().code, ErrorCode::kBusy);
  EXPECT_EQ(timed.load(), 1);
}

TEST_F(CompileServiceTest, RequestsToBeTunedDoNotFillTheQueue) {
  UseHungValidator();
  Serve(1);
  auto running = Ask(*first_, Request());
  ASSERT_TRUE(Soon([&] { return compile_service_->Stats().running == 1; }));
  std::vector<std::future<Result<CompileReply>>> asked;
  for (int64_t most = 100; most < 200; ++most) {
    CompileRequest request = Product(PlanTier::kTuned);
    request.symbols[0].max = most;
    asked.push_back(Ask(*first_, request));
  }
  EXPECT_EQ(asked.back().get().error().code, ErrorCode::kBusy);
  EXPECT_LE(compile_service_->Stats().queued, 16u);
}

TEST(OpTable, PeersAgreeWhenOneTableIsAPrefixOfTheOther) {
  const TablePrefix own = OwnOpTable();
  EXPECT_TRUE(IsOpTableCompatible(own));
  EXPECT_FALSE(IsOpTableCompatible({own.rows, own.hash ^ 1}));
  EXPECT_FALSE(IsOpTableCompatible({own.rows - 1, own.hash})) << "fewer rows have another hash";
  EXPECT_TRUE(IsOpTableCompatible({own.rows + 1, 1})) << "only the peer can compare those";
}

}  // namespace
}  // namespace kiln
