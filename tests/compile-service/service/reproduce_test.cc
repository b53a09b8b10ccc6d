// Plans that a worker accuses, on the wire: only what is wrong here as well is hidden from the fleet.
#include "common/compile_api/reproduce.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "compile-service/jobs/job_codec.h"
#include "compile-service/jobs/replay_files.h"
#include "tests/compile-service/service/service_fixture.h"

namespace kiln {
namespace {

class ReproduceTest : public CompileServiceFixture {
 protected:
  // The plan of `op` with the kernels of `of`, as the compile service would publish it.
  ReproduceRequest Publish(const std::string& op, const std::string& of) {
    const LowerAnswer right = Lowered(op), other = Lowered(of);
    Plan plan = DecodePlan(right.plan).value();
    std::vector<Bytes> code;
    std::vector<KernelBinding> bindings;
    PlanRecord record;
    for (const LowerAnswer::Kernel& kernel : other.kernels) {
      code.push_back(Compile(kernel));
      const KernelId id = KernelIdOf(code.back());
      plan.kernels.push_back(id);
      record.kernels.push_back({id, code.back().size()});
      bindings.push_back(BindKernel(id, id, ValidationKind::kExecuted, key_));
    }
    record.plan_key = ComputePlanKey(plan);
    record.segment = plan.segment;
    record.target = plan.target;
    record.abi = plan.abi;
    record.numeric_mode = static_cast<uint8_t>(plan.numeric_mode);
    record.guard = EncodeGuard(plan.guard, plan.symbols);
    record.plan = EncodePlan(plan);
    EXPECT_TRUE(client_->PublishBlobsSync(code, kWaitMs).has_value());
    const auto stored = client_->CallSync(cache::PublishPlanRequest{EncodeAndSign(record, key_), bindings}, kWaitMs);
    EXPECT_TRUE(stored.has_value()) << ToString(stored.error());
    return {Request(op).segment, record.plan_key, HashBytes(record.plan), {{5, 64}}, {}, 7};
  }
  static std::future<Result<ReproduceReply>> Accuse(RpcClient& client, const ReproduceRequest& request,
                                                    int64_t deadline_ms = kWaitMs) {
    auto answer = std::make_shared<std::promise<Result<ReproduceReply>>>();
    RequestReproduce(client, request, deadline_ms,
                     [answer](Result<ReproduceReply> reply) { answer->set_value(std::move(reply)); });
    return answer->get_future();
  }
  ReproduceReply Verdict(const ReproduceRequest& request) {
    const auto reply = Accuse(*first_, request).get();
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
    return reply.value_or(ReproduceReply{});
  }
  ErrorCode StandingOf(const PlanKey& key) {
    const auto reply = client_->CallSync(cache::GetPlanRequest{key}, kWaitMs);
    return reply.has_value() ? ErrorCode{} : reply.error().code;
  }
  void ServeReal(const CompileServiceOptions& options = {}) {
    validators_ = ChildPool::Start({.binary = KILN_BIN_DIR "/kiln-validate-child",
                                    .job_deadline_ms = kWaitMs,
                                    .replay_directory = directory_ + "/replay"})
                      .value();
    Serve(options);
  }
};

TEST_F(ReproduceTest, AWrongPlanIsHiddenOnOneWorkersWordAndKeptAsEvidence) {
  ServeReal();
  const ReproduceRequest request = Publish("Neg", "Abs");
  const ReproduceReply reply = Verdict(request);
  EXPECT_EQ(reply.verdict.outcome, ReproduceOutcome::kMismatch) << reply.verdict.detail;
  EXPECT_TRUE(reply.quarantined);
  EXPECT_EQ(StandingOf(request.plan_key), ErrorCode::kQuarantined);
  EXPECT_EQ(compile_service_->Stats().reproductions, 1u);
  EXPECT_EQ(compile_service_->Stats().reproduced, 1u);
  EXPECT_FALSE(std::filesystem::is_empty(directory_ + "/replay"));

  const ReproduceReply again = Verdict(request);
  EXPECT_EQ(again.verdict.outcome, ReproduceOutcome::kGone) << "it is hidden already";
  EXPECT_TRUE(again.quarantined);
}

// The accuser knows the seed of one draw only; the others' is the service's own.
TEST_F(ReproduceTest, TheOtherDrawsAreOfTheServicesOwnSource) {
  random_ = [draws = uint64_t{40}]() mutable { return ++draws; };
  ServeReal();
  EXPECT_EQ(Verdict(Publish("Neg", "Abs")).verdict.outcome, ReproduceOutcome::kMismatch);
  const std::filesystem::directory_iterator kept(directory_ + "/replay");
  ASSERT_NE(kept, std::filesystem::directory_iterator());
  const auto job = TryPlanJobFrom(ReadReplay(kept->path().string()).value());
  ASSERT_TRUE(job.has_value()) << ToString(job.error());
  EXPECT_EQ(job->seed, 7u);
  EXPECT_EQ(job->own_seed, 41u);
}

TEST_F(ReproduceTest, ARightPlanStaysHoweverOftenItIsAccused) {
  ServeReal({.reproduce_rate = {3, 1e-6}});
  ReproduceRequest request = Publish("Neg", "Neg");
  for (uint64_t seed = 0; seed < 3; ++seed) {
    request.seed = seed;
    const ReproduceReply reply = Verdict(request);
    EXPECT_EQ(reply.verdict.outcome, ReproduceOutcome::kAgrees) << reply.verdict.detail;
    EXPECT_FALSE(reply.quarantined);
  }
  request.seed = 3;
  const auto refused = Accuse(*second_, request).get();  // the same machine on another connection
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_EQ(StandingOf(request.plan_key), ErrorCode{});
  EXPECT_EQ(compile_service_->Stats().reproduced, 0u);
  EXPECT_EQ(Stat("reports_bad"), 0u);
}

TEST_F(ReproduceTest, WhatTheStoreDoesNotHaveAnyMoreIsGone) {
  ServeReal();
  ReproduceRequest request = Publish("Neg", "Abs");
  ReproduceRequest other = request;
  other.contents = HashBytes({});
  EXPECT_EQ(Verdict(other).verdict.outcome, ReproduceOutcome::kGone) << "another plan under the key";
  EXPECT_EQ(StandingOf(request.plan_key), ErrorCode{});
  ASSERT_TRUE(
      client_->CallSync(cache::PurgeRequest{.kind = cache::PurgeKind::kPlan, .digest = request.plan_key}, kWaitMs)
          .has_value());
  EXPECT_EQ(Verdict(request).verdict.outcome, ReproduceOutcome::kGone) << "purged";
}

TEST_F(ReproduceTest, CasesThatAreNoneAreRefusedAndChangeNothing) {
  ServeReal({.reproduce_rate = {100, 1}});
  const ReproduceRequest good = Publish("Neg", "Neg");
  const std::function<void(ReproduceRequest&)> changes[] = {
      [](ReproduceRequest& r) { r.segment = {1, 2, 3}; },
      [](ReproduceRequest& r) { r.segment = Request("Abs").segment; },
      [](ReproduceRequest& r) { r.inputs = {}; },
      [](ReproduceRequest& r) { r.inputs = {{5, 63}}; },
      [](ReproduceRequest& r) { r.inputs = {{-5, 64}}; },
  };
  for (const auto& change : changes) {
    ReproduceRequest bad = good;
    change(bad);
    EXPECT_FALSE(Accuse(*first_, bad).get().has_value());
  }
  ReproduceRequest huge = good;
  huge.inputs = {{1 << 20, 64}};
  const auto reply = Accuse(*first_, huge).get();  // beyond the segment's range
  EXPECT_TRUE(!reply.has_value() || !reply->verdict.IsReproduced());
  EXPECT_EQ(StandingOf(good.plan_key), ErrorCode{});
  EXPECT_EQ(compile_service_->Stats().reproduced, 0u);
}

TEST_F(ReproduceTest, ARecordThatNobodyTrustsIsNotRun) {
  ServeReal();
  SigningKey stranger = SigningKey::Generate();
  std::swap(key_, stranger);
  const ReproduceRequest request = Publish("Neg", "Abs");
  const auto reply = Accuse(*first_, request).get();
  ASSERT_FALSE(reply.has_value());
  EXPECT_EQ(reply.error().code, ErrorCode::kIntegrityFailure);
}

TEST_F(ReproduceTest, WithoutTheStoreNothingIsDecided) {
  ServeReal();
  const ReproduceRequest request = Publish("Neg", "Abs");
  service_.reset();
  const auto reply = Accuse(*first_, request, 60'000).get();
  ASSERT_FALSE(reply.has_value());
  EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable);
}

TEST_F(ReproduceTest, TrialsAreBoundedAndEndWithTheirDeadline) {
  UseHungValidator();
  Serve(CompileServiceOptions{.job_threads = 1, .reproduce_rate = {100, 1}});
  ReproduceRequest request = Publish("Neg", "Abs");
  std::vector<std::future<Result<ReproduceReply>>> waiting;
  for (request.seed = 0; request.seed < 8; ++request.seed) waiting.push_back(Accuse(*first_, request, 1'500));
  EXPECT_EQ(waiting.back().get().error().code, ErrorCode::kBusy);
  EXPECT_EQ(waiting.front().get().error().code, ErrorCode::kDeadlineExceeded);
  for (size_t i = 1; i + 1 < waiting.size(); ++i) EXPECT_FALSE(waiting[i].get().has_value());
  EXPECT_TRUE(Soon([&] {
    const CompileStats stats = compile_service_->Stats();
    return stats.running == 0 && stats.queued == 0;
  }));
}

}  // namespace
}  // namespace kiln
