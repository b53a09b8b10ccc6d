// A real store and real children for tests of compile jobs and of the service around them.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <functional>

#include "cache-store/service/cache_service.h"
#include "cache-store/store/memory_store.h"
#include "common/bytecode/program_text.h"
#include "common/segment/segment.h"
#include "compile-service/jobs/compile_job.h"
#include "compile-service/jobs/job_codec.h"
#include "tests/support/temp_directory.h"

namespace kiln {

inline constexpr int64_t kWaitMs = 20'000;

class WorkshopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    spdlog::set_level(spdlog::level::off);
    const std::string endpoint = "ipc://" + directory_ + "/cache";
    service_ =
        store::CacheService::Start(store::MakeMemoryStore(), {.endpoints = {endpoint}, .security = {.insecure = true}})
            .value();
    loop_ = Loop::Start("client").value();
    client_ = cache::CacheClient::Connect(*loop_, {.endpoint = endpoint, .security = {.insecure = true}}).value();
    compilers_ = ChildPool::Start({KILN_BIN_DIR "/kiln-compile-child", {}, 1, kWaitMs, {}, {}}).value();
  }
  void TearDown() override {
    validators_.reset();
    compilers_.reset();
    client_.reset();
    service_.reset();
    loop_.reset();
  }
  void UseValidator(const std::string& binary, std::vector<std::string> arguments = {}) {
    validators_ = ChildPool::Start({binary, std::move(arguments), 1, kWaitMs, {}, {}}).value();
  }
  // One that takes its jobs and never answers.
  void UseHungValidator() { UseValidator("/bin/sleep", {"1000"}); }
  CompileWorkshop Workshop() {
    CompileWorkshop workshop{*compilers_, *validators_, *client_, key_, {key_.public_key()}, "test", *clock_};
    workshop.random = random_;
    return workshop;
  }
  // From the request to its end.
  Result<CompileOutcome> Run(const std::string& validator) { return Run(validator, Request()); }
  Result<CompileOutcome> Run(const std::string& validator, CompileRequest request) {
    UseValidator(validator);
    CompileWorkshop workshop = Workshop();
    CompileJob job(std::move(request), workshop, std::make_shared<JobControl>());
    ASSIGN_OR_RETURN(std::optional<CompileOutcome> outcome, job.Advance());
    if (!outcome) return Fail(ErrorCode::kBusy, "somebody else works on it");
    return *outcome;
  }
  // Different ops are different requests.
  static CompileRequest Request(const std::string& op = "Neg") {
    const Program program = ParseProgram(R"(program "sample" {
      symbol n in [1, 4096]
      func main(%x: f32[n, 64]) -> (%y) {
        %r : f32[n, 64] = Relu(%x)
        %y : f32[n, 64] = )" + op + R"((%r)
      }
    })")
                                .value();
    const Segment segment = CanonicalSegment(program, FindSegments(program).at(0)).value();
    // The lowest rung, so that any host can try the kernels.
    return {EncodeSegment(segment).value(),
            "x86-64-v2",
            NumericMode::kDefault,
            PlanTier::kGeneric,
            0,
            {{1, 4096, 1}},
            {64}};
  }
  // Two products of different sizes, one of them twice.
  static CompileRequest Product(PlanTier tier) {
    const Program program = ParseProgram(R"(program "sample" {
      symbol n in [1, 4096]
      constant w : f32[64, 40] = splat 0.5
      constant v : f32[40, 40] = splat 0.25
      func main(%x: f32[n, 64]) -> (%y) {
        %w : f32[64, 40] = Constant() {value = @w}
        %v : f32[40, 40] = Constant() {value = @v}
        %a : f32[n, 40] = MatMul(%x, %w)
        %b : f32[n, 40] = MatMul(%a, %v)
        %c : f32[n, 40] = MatMul(%b, %v)
        %y : f32[n, 40] = Relu(%c)
      }
    })")
                                .value();
    const Segment segment = CanonicalSegment(program, FindSegments(program).at(0)).value();
    return {EncodeSegment(segment).value(), "x86-64-v2", NumericMode::kDefault, tier, 7, {{1, 4096, 1}}, {64}};
  }
  // What the compile child makes of the request.
  LowerAnswer Lowered(const std::string& op = "Neg") {
    Message message = EncodeCompileRequest(Request(op));
    return LowerAnswerFrom(compilers_->Submit(LowerFrame(std::move(message.payload)), 0).get().value()).value();
  }
  Bytes Compile(const LowerAnswer::Kernel& kernel) {
    const Frame job = ToFrame(CompileKernelJob{Target::kX86V2, kernel.spec});
    return CompileKernelAnswerFrom(compilers_->Submit(job, 0).get().value()).value().code;
  }
  // Kernels and index entries as they are, whatever they say.
  void Put(const Bytes& code, const KernelBinding& binding) {
    const auto stored = client_->PublishBlobsSync({code}, kWaitMs, {binding});
    ASSERT_TRUE(stored.has_value()) << ToString(stored.error());
  }
  KernelBinding Bound(const Digest& key) {
    KernelBinding binding = client_->CallSync(cache::LookupKernelsRequest{{key}}, kWaitMs)->kernels.at(0);
    binding.key = key;
    return binding;
  }
  PlanRecord Record(const PlanKey& key) {
    const Bytes bytes = client_->CallSync(cache::GetPlanRequest{key}, kWaitMs)->record;
    return DecodeAndVerify(bytes, {key_.public_key()})->record;
  }
  std::vector<PlanKey> Published() {
    const cache::ListReply reply = client_->CallSync(cache::ListRequest{}, kWaitMs).value();
    std::vector<PlanKey> keys;
    for (const cache::PlanSummary& plan : reply.plans) keys.push_back(plan.plan_key);
    return keys;
  }
  uint64_t Stat(const std::string& name) {
    const cache::StatsReply reply = client_->CallSync(cache::StatsRequest{}, kWaitMs).value();
    for (const cache::Stat& stat : reply.stats)
      if (stat.name == name) return stat.value;
    ADD_FAILURE() << "the store has no statistic " << name;
    return 0;
  }

  bool Claim(cache::ClaimKind kind, const Digest& key, const std::string& holder) {
    const auto reply = client_->CallSync(cache::ClaimRequest{kind, {key}, 60'000, holder}, kWaitMs);
    return reply.has_value() && reply->entries.at(0).state == cache::ClaimState::kGranted;
  }
  void Release(cache::ClaimKind kind, const Digest& key, const std::string& holder) {
    ASSERT_TRUE(client_->CallSync(cache::ReleaseRequest{kind, {key}, holder}, kWaitMs).has_value());
  }
  // Whether `condition` holds before long.
  static bool Soon(const std::function<bool()>& condition) {
    for (int i = 0; i < kWaitMs / 10 && !condition(); ++i) ::usleep(10'000);
    return condition();
  }

  const testing::TempDirectory temp_directory_;
  const std::string& directory_ = temp_directory_.path();
  const Clock* clock_ = &SystemClock();
  RandomBits random_ = SystemRandomBits;
  std::unique_ptr<store::CacheService> service_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<cache::CacheClient> client_;
  std::unique_ptr<ChildPool> compilers_, validators_;
  SigningKey key_ = SigningKey::Generate();
};

}  // namespace kiln
