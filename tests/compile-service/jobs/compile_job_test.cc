// RunCompileJob with a real store and real children: what is published, what is found, and what a failure leaves
// behind.
#include "compile-service/jobs/compile_job.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>

#include <filesystem>

#include "cache-store/service/cache_service.h"
#include "cache-store/store/memory_store.h"
#include "common/bytecode/program_text.h"
#include "common/segment/segment.h"

namespace kiln {
namespace {

constexpr int64_t kWaitMs = 20'000;

class CompileJobTest : public ::testing::Test {
 protected:
  void SetUp() override {
    spdlog::set_level(spdlog::level::off);
    char path[] = "/tmp/kiln-job-XXXXXX";
    directory_ = ::mkdtemp(path);
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
    std::filesystem::remove_all(directory_);
  }
  Result<CompileOutcome> Run(const std::string& validator) {
    validators_ = ChildPool::Start({validator, {}, 1, kWaitMs, {}, {}}).value();
    CompileWorkshop workshop{*compilers_, *validators_, *client_, key_, {key_.public_key()}, "test"};
    return RunCompileJob(Request(), workshop);
  }
  static CompileRequest Request() {
    const Program program = ParseProgram(R"(program "sample" {
      symbol n in [1, 4096]
      func main(%x: f32[n, 64]) -> (%y) {
        %r : f32[n, 64] = Relu(%x)
        %y : f32[n, 64] = Neg(%r)
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

  std::string directory_;
  std::unique_ptr<store::CacheService> service_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<cache::CacheClient> client_;
  std::unique_ptr<ChildPool> compilers_, validators_;
  SigningKey key_ = SigningKey::Generate();
};

TEST_F(CompileJobTest, PublishesOnceAndFindsItTheNextTime) {
  const Result<CompileOutcome> first = Run(KILN_BIN_DIR "/kiln-validate-child");
  ASSERT_TRUE(first.has_value()) << ToString(first.error());
  EXPECT_FALSE(first->reply.already_there);
  EXPECT_EQ(first->reply.kernels_compiled, first->reply.kernels);
  EXPECT_EQ(Published(), std::vector<PlanKey>{first->reply.plan_key});
  EXPECT_EQ(Stat("leases"), 0u);
  const Result<CompileOutcome> second = Run(KILN_BIN_DIR "/kiln-validate-child");
  ASSERT_TRUE(second.has_value()) << ToString(second.error());
  EXPECT_TRUE(second->reply.already_there);
  EXPECT_EQ(second->reply.plan_key, first->reply.plan_key);
}

// The child answers nonsense, as one that fails does: nothing may be published, and nobody may have to wait for the
// lease.
TEST_F(CompileJobTest, WithoutValidationNothingIsPublishedAndTheLeaseIsGivenBack) {
  EXPECT_FALSE(Run(ECHO_CHILD).has_value());
  EXPECT_TRUE(Published().empty());
  EXPECT_EQ(Stat("claims_granted"), 1u);
  EXPECT_EQ(Stat("leases"), 0u);
  const Result<CompileOutcome> retried = Run(KILN_BIN_DIR "/kiln-validate-child");
  ASSERT_TRUE(retried.has_value()) << ToString(retried.error());
  EXPECT_FALSE(retried->reply.already_there);
}

}  // namespace
}  // namespace kiln
