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
#include "compile-service/jobs/job_codec.h"

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
  // What the compile child makes of the request.
  LowerAnswer Lowered() {
    Message message = EncodeCompileRequest(Request());
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

// A store, or whoever may write to it, that says of a kernel key what no trusted signer says: the kernel is compiled
// and tried again, and the lie is not in what we sign.
TEST_F(CompileJobTest, AnIndexEntryThatNoTrustedSignerBoundIsNotReused) {
  const LowerAnswer lowered = Lowered();
  ASSERT_EQ(lowered.kernels.size(), 1u);
  const Digest key = lowered.kernels[0].key;
  const Bytes right = Compile(lowered.kernels[0]);
  Bytes other = right;  // a kernel all the same, of another computation
  other.back() ^= 1;
  const SigningKey stranger = SigningKey::Generate();
  KernelBinding of_another_key = BindKernel(HashBytes(right), KernelIdOf(other), ValidationKind::kExecuted, key_);
  of_another_key.key = key;
  KernelBinding of_another_kernel = BindKernel(key, KernelIdOf(right), ValidationKind::kExecuted, key_);
  of_another_kernel.id = KernelIdOf(other);
  KernelBinding raised = BindKernel(key, KernelIdOf(other), ValidationKind::kNotExecuted, key_);
  raised.validation = ValidationKind::kExecuted;
  const std::pair<const char*, KernelBinding> lies[] = {
      {"unsigned", {key, KernelIdOf(other), ValidationKind::kExecuted}},
      {"signed by a stranger", BindKernel(key, KernelIdOf(other), ValidationKind::kExecuted, stranger)},
      {"signed for another key", of_another_key},
      {"signed for another kernel", of_another_kernel},
      {"called executed after it was signed", raised}};
  for (const auto& [name, lie] : lies) {
    SCOPED_TRACE(name);
    Put(other, lie);
    ASSERT_EQ(Bound(key).id, KernelIdOf(other));
    const Result<CompileOutcome> outcome = Run(KILN_BIN_DIR "/kiln-validate-child");
    ASSERT_TRUE(outcome.has_value()) << ToString(outcome.error());
    EXPECT_EQ(outcome->kernels_reused, 0u);
    EXPECT_EQ(outcome->reply.kernels_compiled, 1u);
    const PlanRecord record = Record(outcome->reply.plan_key);
    ASSERT_EQ(record.kernels.size(), 1u);
    EXPECT_EQ(record.kernels[0].id, KernelIdOf(right));
    EXPECT_EQ(record.evidence.validation, ValidationKind::kExecuted);
    EXPECT_EQ(Bound(key), BindKernel(key, KernelIdOf(right), ValidationKind::kExecuted, key_)) << "the store is healed";
    ASSERT_TRUE(client_->CallSync(cache::PurgeRequest{cache::PurgeKind::kPlan, outcome->reply.plan_key}, kWaitMs));
  }
}

TEST_F(CompileJobTest, AReusedKernelBringsItsOwnEvidence) {
  const LowerAnswer lowered = Lowered();
  const Digest key = lowered.kernels.at(0).key;
  const Bytes code = Compile(lowered.kernels[0]);
  for (const ValidationKind known : {ValidationKind::kNotExecuted, ValidationKind::kExecuted}) {
    Put(code, BindKernel(key, KernelIdOf(code), known, key_));
    const Result<CompileOutcome> outcome = Run(ECHO_CHILD);  // nothing is left to be tried
    ASSERT_TRUE(outcome.has_value()) << ToString(outcome.error());
    EXPECT_EQ(outcome->kernels_reused, 1u);
    EXPECT_EQ(Record(outcome->reply.plan_key).evidence.validation, known);
    ASSERT_TRUE(client_->CallSync(cache::PurgeRequest{cache::PurgeKind::kPlan, outcome->reply.plan_key}, kWaitMs));
  }
}

}  // namespace
}  // namespace kiln
