// CompileJob with a real store and real children: what is published, what is found, who waits for whom, and what a
// failure leaves behind.
#include "compile-service/jobs/compile_job.h"

#include <atomic>
#include <functional>
#include <map>
#include <thread>

#include "compile-service/jobs/check_lowered.h"
#include "compile-service/jobs/codegen_id_of.h"
#include "tests/compile-service/jobs/workshop_fixture.h"

namespace kiln {
namespace {

using CompileJobTest = WorkshopTest;

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

// The same request in two forms: two plans side by side, of which the record says what each reads.
TEST_F(CompileJobTest, PlansOfBothFormsOfWeightsLieSideBySide) {
  std::map<WeightForm, PlanKey> keys;
  for (const WeightForm form : {WeightForm::kPacked, WeightForm::kAsGiven}) {
    CompileRequest request = Product(PlanTier::kGeneric);
    request.weights = form;
    const Result<CompileOutcome> outcome = Run(KILN_BIN_DIR "/kiln-validate-child", request);
    ASSERT_TRUE(outcome.has_value()) << ToString(outcome.error());
    EXPECT_EQ(outcome->reply.reference_nodes, 0u);
    const PlanRecord record = Record(keys[form] = outcome->reply.plan_key);
    EXPECT_EQ(record.weights, static_cast<uint8_t>(form));
    const Plan plan = DecodePlan(record.plan).value();
    EXPECT_EQ(plan.weights, form);
    EXPECT_EQ(plan.PacksWeights(), form == WeightForm::kPacked);
  }
  EXPECT_NE(keys[WeightForm::kPacked], keys[WeightForm::kAsGiven]);
  EXPECT_EQ(Published().size(), 2u);
}

// The child answers nonsense, as one that fails does: nothing may be published, and nobody may have to wait for the
// lease.
TEST_F(CompileJobTest, WithoutValidationNothingIsPublishedAndTheLeaseIsGivenBack) {
  EXPECT_FALSE(Run(ECHO_CHILD).has_value());
  EXPECT_TRUE(Published().empty());
  EXPECT_EQ(Stat("claims_granted"), 2u) << "of the plan and of its kernel";
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
  Put(code, BindKernel(key, KernelIdOf(code), ValidationKind::kExecuted, key_));
  const Result<CompileOutcome> outcome = Run(ECHO_CHILD);  // nothing is left to be tried
  ASSERT_TRUE(outcome.has_value()) << ToString(outcome.error());
  EXPECT_EQ(outcome->kernels_reused, 1u);
  EXPECT_EQ(Record(outcome->reply.plan_key).evidence.validation, ValidationKind::kExecuted);
}

// A replica on a weaker host made it; this one can run it, and does.
TEST_F(CompileJobTest, AKernelThatNobodyRanIsTriedWhereItCanBe) {
  const LowerAnswer lowered = Lowered();
  const Digest key = lowered.kernels.at(0).key;
  const Bytes code = Compile(lowered.kernels[0]);
  Put(code, BindKernel(key, KernelIdOf(code), ValidationKind::kNotExecuted, key_));
  const Result<CompileOutcome> outcome = Run(KILN_BIN_DIR "/kiln-validate-child");
  ASSERT_TRUE(outcome.has_value()) << ToString(outcome.error());
  EXPECT_EQ(outcome->kernels_reused, 0u);
  EXPECT_EQ(Record(outcome->reply.plan_key).evidence.validation, ValidationKind::kExecuted);
  EXPECT_EQ(Bound(key).validation, ValidationKind::kExecuted);
}

// Whatever a child answers, nothing is signed that the request did not ask for.
TEST_F(CompileJobTest, AnAnswerThatDoesNotFitTheRequestIsRefused) {
  const LowerAnswer good = Lowered();
  const CompileRequest request = Request();
  const Segment segment = DecodeSegment(request.segment).value();
  const Plan plan = DecodePlan(good.plan).value();
  const Digest own = CodegenIdOf(Target::kX86V2, "").value();
  ASSERT_TRUE(CheckLowered(good, plan, request, segment, own).has_value());
  const std::pair<const char*, std::function<void(LowerAnswer&, Plan&)>> lies[] = {
      {"another kernel's key", [](LowerAnswer& answer, Plan&) { answer.kernels[0].key.bytes[0] ^= 1; }},
      {"bytes that are no spec", [](LowerAnswer& answer, Plan&) { answer.kernels[0].spec.pop_back(); }},
      {"another code generator", [](LowerAnswer& answer, Plan&) { answer.codegen_id.bytes[0] ^= 1; }},
      {"another target", [](LowerAnswer&, Plan& made) { made.target = "x86-64-v3"; }},
      {"another segment", [](LowerAnswer&, Plan& made) { made.segment.bytes[0] ^= 1; }},
      {"another mode", [](LowerAnswer&, Plan& made) { made.numeric_mode = NumericMode::kFast; }},
      {"another form of weights", [](LowerAnswer&, Plan& made) { made.weights = WeightForm::kAsGiven; }},
      {"another ABI", [](LowerAnswer&, Plan& made) { ++made.abi; }},
      {"a buffer in a place that is not free",
       [](LowerAnswer&, Plan& made) {
         made.buffers.push_back({Dim::Const(64), 0, 0});
         made.buffers.push_back({Dim::Const(64), 0, 0, static_cast<int32_t>(made.buffers.size()) - 1});
       }},
      {"a wider guard", [](LowerAnswer&, Plan& made) { made.guard.symbols[0].max = 5000; }},
      {"fewer symbols", [](LowerAnswer&, Plan& made) { made.guard.symbols.clear(); }}};
  for (const auto& [name, lie] : lies) {
    LowerAnswer answer = good;
    Plan made = plan;
    lie(answer, made);
    EXPECT_FALSE(CheckLowered(answer, made, request, segment, own).has_value()) << name;
  }
  Plan narrower = plan;
  narrower.guard.symbols[0] = {8, 64, 8};
  EXPECT_TRUE(CheckLowered(good, narrower, request, segment, own).has_value());

  Plan open = plan;
  open.guard.symbols[0] = SymbolGuard{};
  EXPECT_FALSE(CheckLowered(good, open, request, segment, own).has_value());
  Segment inner = segment;
  inner.symbols[0].kind = SymbolSource::Kind::kValueDim;
  EXPECT_TRUE(CheckLowered(good, open, request, inner, own).has_value()) << "no input shows the symbol's value";
}

TEST_F(CompileJobTest, AQuarantinedPlanIsMadeAgainByAnotherCodeGeneratorOnly) {
  const Result<CompileOutcome> first = Run(KILN_BIN_DIR "/kiln-validate-child");
  ASSERT_TRUE(first.has_value()) << ToString(first.error());
  const PlanKey key = first->reply.plan_key;
  PlanRecord older = Record(key);
  older.provenance.codegen_id.bytes[0] ^= 1;
  older.provenance.created_wall_ms = 1;
  const auto mark = [&] { ASSERT_TRUE(client_->CallSync(cache::QuarantineRequest{key, true}, kWaitMs).has_value()); };
  const auto purge = [&] {
    ASSERT_TRUE(client_->CallSync(cache::PurgeRequest{cache::PurgeKind::kPlan, key}, kWaitMs).has_value());
  };
  mark();
  for (const bool stored : {true, false}) {
    const Result<CompileOutcome> again = Run(ECHO_CHILD);  // nothing comes to be tried
    ASSERT_FALSE(again.has_value());
    EXPECT_EQ(again.error().code, ErrorCode::kQuarantined) << "its record is stored: " << stored;
    purge();
  }
  ASSERT_TRUE(client_->CallSync(cache::QuarantineRequest{key, false}, kWaitMs).has_value());
  ASSERT_TRUE(client_->PublishBlobsSync({Compile(Lowered().kernels.at(0))}, kWaitMs).has_value());
  const auto published = client_->CallSync(cache::PublishPlanRequest{EncodeAndSign(older, key_), {}}, kWaitMs);
  ASSERT_TRUE(published.has_value()) << ToString(published.error());
  mark();
  const Result<CompileOutcome> healed = Run(KILN_BIN_DIR "/kiln-validate-child");
  ASSERT_TRUE(healed.has_value()) << ToString(healed.error());
  EXPECT_FALSE(healed->reply.already_there);
  EXPECT_EQ(Published(), std::vector<PlanKey>{key});
}

// The store is what fails here, not the request.
TEST_F(CompileJobTest, WhatTheStoreRefusesIsUnavailable) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  CompileWorkshop workshop = Workshop();
  workshop.holder = std::string(1000, 'x');  // more than the store takes
  CompileJob job(Request(), workshop, std::make_shared<JobControl>());
  const auto outcome = job.Advance();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kUnavailable) << ToString(outcome.error());
}

// Equal plans of different requests: the values seen are no part of a plan's key.
TEST_F(CompileJobTest, OnePlanIsMadeByOneJobOfAProcess) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  CompileWorkshop workshop = Workshop();
  const PlanKey key = ComputePlanKey(DecodePlan(Lowered().plan).value());
  ASSERT_TRUE(workshop.in_work->Begin(key));  // by another job of this process
  {
    CompileJob job(Request(), workshop, std::make_shared<JobControl>());
    const auto outcome = job.Advance();
    ASSERT_TRUE(outcome.has_value() && !outcome->has_value());
    EXPECT_EQ(job.waits_for().key, key);
  }
  EXPECT_FALSE(workshop.in_work->Begin(key)) << "who did not begin it does not end it";
  EXPECT_EQ(Stat("claims_granted"), 0u);
  workshop.in_work->End(key);
  CompileJob job(Request(), workshop, std::make_shared<JobControl>());
  const auto outcome = job.Advance();
  ASSERT_TRUE(outcome.has_value() && outcome->has_value());
  EXPECT_FALSE((**outcome).reply.already_there);
}

TEST(JobControl, ADeadlineThatWasMissedIsKnownWhenALaterOneComes) {
  JobControl control(1'000);
  EXPECT_TRUE(control.Check(1'000).has_value());
  EXPECT_FALSE(control.missed_deadline_ns().has_value());
  EXPECT_EQ(control.Check(1'001).error().code, ErrorCode::kDeadlineExceeded);
  control.Extend(5'000);
  EXPECT_EQ(control.missed_deadline_ns(), 1'000);
  EXPECT_TRUE(control.Check(1'001).has_value());
}

// Time that a test moves on.
class OffsetClock final : public Clock {
 public:
  int64_t NowNs() const override { return SystemClock().NowNs() + offset_ns.load(); }
  int64_t WallMs() const override { return SystemClock().WallMs(); }
  std::atomic<int64_t> offset_ns{0};
};

TEST_F(CompileJobTest, AHeldPlanIsLeftAloneUntilItsLeaseEnds) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  CompileWorkshop workshop = Workshop();
  const PlanKey key = ComputePlanKey(DecodePlan(Lowered().plan).value());
  ASSERT_TRUE(Claim(cache::ClaimKind::kPlan, key, "another"));
  CompileJob job(Request(), workshop, std::make_shared<JobControl>());
  for (int round = 0; round < 2; ++round) {
    const auto outcome = job.Advance();
    ASSERT_TRUE(outcome.has_value()) << ToString(outcome.error());
    EXPECT_FALSE(outcome->has_value());
  }
  EXPECT_TRUE(Published().empty());
  Release(cache::ClaimKind::kPlan, key, "another");
  const auto outcome = job.Advance();
  ASSERT_TRUE(outcome.has_value() && outcome->has_value());
  EXPECT_EQ(Published(), std::vector<PlanKey>{key});
}

TEST_F(CompileJobTest, AKernelInWorkElsewhereIsNotCompiledTwice) {
  UseValidator(KILN_BIN_DIR "/kiln-validate-child");
  CompileWorkshop workshop = Workshop();
  const LowerAnswer lowered = Lowered();
  const Digest key = lowered.kernels.at(0).key;
  CompileJob job(Request(), workshop, std::make_shared<JobControl>());
  const auto nothing_yet = [&] {
    const auto outcome = job.Advance();
    return outcome.has_value() && !outcome->has_value();
  };
  ASSERT_TRUE(workshop.in_work->Begin(key));  // by another job of this process
  EXPECT_TRUE(nothing_yet());
  workshop.in_work->End(key);
  ASSERT_TRUE(Claim(cache::ClaimKind::kKernel, key, "another"));  // by another replica
  EXPECT_TRUE(nothing_yet());
  EXPECT_TRUE(workshop.in_work->Begin(key)) << "it is not kept while others have it";
  workshop.in_work->End(key);
  const Bytes code = Compile(lowered.kernels[0]);
  Put(code, BindKernel(key, KernelIdOf(code), ValidationKind::kExecuted, key_));
  const auto outcome = job.Advance();
  ASSERT_TRUE(outcome.has_value() && outcome->has_value());
  EXPECT_EQ((**outcome).reply.kernels_compiled, 0u);
  EXPECT_EQ((**outcome).kernels_reused, 1u);
}

TEST_F(CompileJobTest, LeasesAreExtendedWhileItWorksAndGivenBackWhenNobodyWaits) {
  OffsetClock clock;
  clock_ = &clock;
  UseHungValidator();
  CompileWorkshop workshop = Workshop();
  const auto control = std::make_shared<JobControl>();
  Result<std::optional<CompileOutcome>> outcome;
  auto job = std::make_unique<CompileJob>(Request(), workshop, control);
  std::thread worker([&] { outcome = job->Advance(); });
  EXPECT_TRUE(Soon([&] { return Stat("leases") == 2; })) << "of the plan and of its kernel";
  EXPECT_EQ(Stat("claims_granted"), 2u);
  for (uint64_t round = 2; round < 4; ++round) {
    clock.offset_ns += int64_t{11'000} * 1'000'000;
    EXPECT_TRUE(Soon([&] { return Stat("claims_granted") == 2 * round; }));
  }
  control->Cancel();
  worker.join();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kCancelled);
  job.reset();
  EXPECT_EQ(Stat("leases"), 0u);
  EXPECT_TRUE(Published().empty());
}

TEST_F(CompileJobTest, TheDeadlineEndsAJobThatWaitsForItsChildren) {
  UseHungValidator();
  CompileWorkshop workshop = Workshop();
  const auto control = std::make_shared<JobControl>(SystemClock().NowNs() + int64_t{1'000} * 1'000'000);
  CompileJob job(Request(), workshop, control);
  const auto outcome = job.Advance();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace kiln
