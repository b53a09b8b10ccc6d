#include "vm-worker/dispatch/plan_instance.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "common/base/clock.h"
#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/dispatch/plan_blocks.h"

namespace kiln {
namespace {

using ::testing::HasSubstr;
using testing::HeapMemory;
using testing::Linked;
using testing::ReluPlan;
using testing::ReluSegment;

TEST(PlanInstance, RunsAtEverySizeItsGuardAdmits) {
  const auto plan = Linked(ReluPlan(0, 4096));
  for (const int64_t n : {0, 1, 3, 17}) {
    const int64_t values[] = {n};
    auto instance = PlanInstance::Instantiate(plan, values);
    ASSERT_TRUE(instance.has_value()) << ToString(instance.error());
    Tensor x = Tensor::Allocate(DType::kF32, {n, 4});
    for (int64_t i = 0; i < 4 * n; ++i) x.ref.as<float>()[i] = static_cast<float>(i % 2 == 0 ? i : -i);
    Tensor y = Tensor::Allocate(DType::kF32, (*instance)->output(0).dims);
    EXPECT_EQ(y.dims(), (Dims{n, 4}));
    HeapMemory memory;
    void* outputs[] = {y.ref.data};
    ASSERT_TRUE((*instance)->Run({{&x.ref, 1}, outputs, nullptr, &memory, nullptr, nullptr}).has_value());
    for (int64_t i = 0; i < 4 * n; ++i) EXPECT_EQ(y.ref.as<float>()[i], i % 2 == 0 ? static_cast<float>(i) : 0.0f);
  }
}

TEST(PlanInstance, ADeadlineEndsTheRunBetweenSteps) {
  Plan plan = ReluPlan(0, 4096);
  plan.steps.push_back(plan.steps.front());
  const int64_t values[] = {2};
  const auto instance = PlanInstance::Instantiate(Linked(std::move(plan)), values);
  ASSERT_TRUE(instance.has_value()) << ToString(instance.error());
  const Tensor x = Tensor::Zeros(DType::kF32, {2, 4}), y = Tensor::Zeros(DType::kF32, {2, 4});
  HeapMemory memory;
  void* outputs[] = {y.ref.data};
  PlanCall call{{&x.ref, 1}, outputs, nullptr, &memory};
  call.deadline_ns = SystemClock().NowNs() - 1;
  const Status late = (*instance)->Run(call);
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::kDeadlineExceeded);
  call.deadline_ns = SystemClock().NowNs() + 3'600'000'000'000;
  EXPECT_TRUE((*instance)->Run(call).has_value());
}

TEST(PlanInstance, AValueThatLeavesItsStorageIsRefused) {
  Plan plan = ReluPlan(0, 4096);
  plan.values[0].offset = Dim::Const(1);  // the last element lies behind the input
  const int64_t values[] = {2};
  const auto instance = PlanInstance::Instantiate(Linked(std::move(plan)), values);
  ASSERT_FALSE(instance.has_value());
  EXPECT_EQ(instance.error().code, ErrorCode::kIntegrityFailure);
  Plan negative = ReluPlan(0, 4096);
  negative.values[0].strides[1] = Dim::Const(-1);
  EXPECT_EQ(PlanInstance::Instantiate(Linked(std::move(negative)), values).error().code, ErrorCode::kIntegrityFailure);
}

// A plan's bytes say what its reference steps write; the ops' rules have the last word.
TEST(PlanInstance, AReferenceStepThatDisagreesWithItsOpIsRefused) {
  const int64_t values[] = {2};
  const auto refused = [&](Plan plan) {
    const auto instance = PlanInstance::Instantiate(Linked(std::move(plan)), values);
    return instance.has_value() ? std::string() : ToString(instance.error());
  };
  const Dim four = Dim::Const(4), one = Dim::Const(1), two = Dim::Const(2);
  Plan transposes = ReluPlan(0, 4096, TensorOp::kTranspose);  // [2, 4] becomes [4, 2], not [2, 4]
  EXPECT_THAT(refused(std::move(transposes)), HasSubstr("Transpose makes output 0 [2, 4]; the op gives f32[4, 2]"));
  Plan casts = ReluPlan(0, 4096);
  casts.values.push_back({StorageKind::kArena, 0, DType::kI64, Dim::Const(0), {two, four}, {four, one}});
  casts.buffers = {{Dim::Const(64), 0, 0}};
  casts.steps[0].step = ReferenceStep{TensorOp::kRelu, {}, {0}, {2}};
  EXPECT_THAT(refused(std::move(casts)), HasSubstr("Relu makes output 0 i64; the op gives f32"));
  Plan shape = ReluPlan(0, 4096);
  shape.values.push_back({StorageKind::kArena, 0, DType::kI64, Dim::Const(0), {two}, {one}});
  shape.buffers = {{Dim::Const(16), 0, 0}};
  Attributes dims;
  dims.Set("dims", std::vector<Dim>{one, two, four});
  shape.steps[0].step = ReferenceStep{TensorOp::kShapeVector, dims, {}, {2}};
  EXPECT_THAT(refused(std::move(shape)), HasSubstr("writes 3 dims to [2]"));
  Plan output = ReluPlan(0, 4096);  // Relu of the first column, as if it were the answer
  for (PlanValue& value : output.values) value.dims[1] = one;
  EXPECT_THAT(refused(std::move(output)), HasSubstr("plan output 0 is [2, 1]"));
}

// Softmax takes no strides: the copy it reads is made anew in every run.
TEST(PlanInstance, AStridedOperandIsReadAnewInEveryRun) {
  Plan plan = ReluPlan(4, 4);  // y = Softmax(transposed x); the square keeps the output's dims
  plan.values[0].strides = {Dim::Const(1), Dim::Const(4)};
  plan.steps[0].step = ReferenceStep{TensorOp::kSoftmax, {}, {0}, {1}};
  ASSERT_FALSE(FindReferenceKernel(TensorOp::kSoftmax, DType::kF32)->strided_inputs);
  const int64_t values[] = {4};
  auto instance = PlanInstance::Instantiate(Linked(std::move(plan)), values);
  ASSERT_TRUE(instance.has_value()) << ToString(instance.error());
  for (int run = 0; run < 3; ++run) {
    Tensor x = Tensor::Allocate(DType::kF32, {4, 4}), y = Tensor::Allocate(DType::kF32, {4, 4});
    for (int i = 0; i < 16; ++i) x.ref.as<float>()[i] = static_cast<float>(i % 4 == run ? i : 0);
    HeapMemory memory;
    void* outputs[] = {y.ref.data};
    ASSERT_TRUE((*instance)->Run({{&x.ref, 1}, outputs, nullptr, &memory, nullptr, nullptr}).has_value());
    for (int row = 0; row < 4; ++row) {
      double sum = 0;
      for (int k = 0; k < 4; ++k) sum += std::exp(x.ref.as<float>()[4 * k + row]);
      for (int column = 0; column < 4; ++column)
        EXPECT_NEAR(y.ref.as<float>()[4 * row + column], std::exp(x.ref.as<float>()[4 * column + row]) / sum, 1e-6)
            << "run " << run;
    }
  }
}

TEST(PackedWeights, OfAModelThatIsGoneServeNoOther) {
  int packed = 0;
  PackedWeights packer([&](const Program&, std::span<const TensorRef> inputs) -> Result<Tensor> {
    ++packed;
    return MakeContiguous(inputs[0]);
  });
  float storage[4] = {1, 2, 3, 4};  // both models' weights lie here
  const TensorRef weight = MakeRef(DType::kF32, {4}, storage);
  const PrepackRecipe recipe{ReluSegment().body, {0}};
  auto first = std::make_shared<int>(1);
  const auto of_first = packer.Pack({&recipe, 1}, {&weight, 1}, first).value().at(0);
  EXPECT_EQ(packer.Pack({&recipe, 1}, {&weight, 1}, first).value().at(0), of_first);
  EXPECT_EQ(packed, 1);
  first.reset();
  storage[0] = 9;
  const auto of_second = packer.Pack({&recipe, 1}, {&weight, 1}, std::make_shared<int>(2)).value().at(0);
  EXPECT_EQ(packed, 2);
  EXPECT_EQ(of_second->ref.as<float>()[0], 9);
}

TEST(PackedWeights, OfAPlanAreAllPackedOrNone) {
  MemoryBudget budget(500);
  int packed = 0;
  PackedWeights packer(
      [&](const Program&, std::span<const TensorRef> inputs) -> Result<Tensor> {
        ++packed;
        return MakeContiguous(inputs[0]);
      },
      &budget);
  float storage[3][64] = {};
  const auto owner = std::make_shared<int>(1);
  const Program copy =
      ParseProgram(R"(program "prepack" { func main(%w: f32[64]) -> (%p) { %p : f32[64] = Abs(%w) } })").value();
  std::vector<TensorRef> weights;
  for (auto& weight : storage) weights.push_back(MakeRef(DType::kF32, {64}, weight));
  const std::vector<PrepackRecipe> two = {{copy, {0}}, {copy, {1}}}, same = {{copy, {0}}, {copy, {0}}};
  const auto refused = packer.Pack(two, weights, owner, WithoutRoom::kGoWithout);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(packed, 0);
  EXPECT_EQ(budget.used(), 0);
  EXPECT_FALSE(budget.IsTight()) << "nobody has to leave for it";
  {
    const auto runs = MemoryCharge::Take(&budget, MemoryUse::kArenas, 240).value();
    EXPECT_EQ(packer.Pack(same, weights, owner, WithoutRoom::kGoWithout).error().code, ErrorCode::kResourceExhausted)
        << "what is left for runs is less than a tenth";
    EXPECT_EQ(packed, 0);
  }
  {
    const auto once = packer.Pack(same, weights, owner).value();
    EXPECT_EQ(packed, 1);
    EXPECT_EQ(once[0], once[1]);
    EXPECT_EQ(budget.used(MemoryUse::kPackedWeights), 256);
    EXPECT_FALSE(packer.Pack(two, weights, owner).has_value()) << "the second of them has no room";
    EXPECT_TRUE(budget.IsTight());
    EXPECT_EQ(packed, 1);
  }
  EXPECT_EQ(budget.used(), 0);
}

TEST(LinkedPlan, RefusesWhatItWasNotMadeFor) {
  const auto refused = [](Plan plan) {
    PackedWeights packer(
        [](const Program&, std::span<const TensorRef>) -> Result<Tensor> { return Fail(ErrorCode::kInternal, ""); });
    std::shared_ptr<const CodeMapping> code = CodeMapping::Map({}, {}, HostTargets().front()).value();
    return LinkedPlan::Link(std::make_shared<const Plan>(std::move(plan)), {}, ReluSegment(), code, {}, packer)
        .error()
        .code;
  };
  Plan other_segment = ReluPlan(0, 8);
  other_segment.segment.bytes[0] ^= 1;
  EXPECT_EQ(refused(std::move(other_segment)), ErrorCode::kMalformed);
  Plan other_abi = ReluPlan(0, 8);
  other_abi.abi += 1;
  EXPECT_EQ(refused(std::move(other_abi)), ErrorCode::kTargetMismatch);
  Plan writes_input = ReluPlan(0, 8);
  std::get<ReferenceStep>(writes_input.steps[0].step).outputs = {0};
  EXPECT_EQ(refused(std::move(writes_input)), ErrorCode::kMalformed);
  Plan no_kernel = ReluPlan(0, 8);
  no_kernel.steps[0].step = KernelStep{0, {0, 1}, {}, Dim::Const(1), Dim::Const(1), Dim::Const(0)};
  EXPECT_EQ(refused(std::move(no_kernel)), ErrorCode::kMalformed);
}

TEST(PlanCodec, RoundTripKeepsEverything) {
  const Plan plan = ReluPlan(1, 64);
  const Plan back = DecodePlan(EncodePlan(plan)).value();
  EXPECT_EQ(EncodePlan(back), EncodePlan(plan));
  EXPECT_EQ(ComputePlanKey(back), ComputePlanKey(plan));
  EXPECT_EQ(back.guard, plan.guard);
  EXPECT_TRUE(VerifyPlan(back, ReluSegment()).has_value());
}

TEST(PlanCodec, DamagedBytesAreAnErrorOrAnotherValidPlan) {
  const std::vector<uint8_t> bytes = EncodePlan(ReluPlan(1, 64));
  for (size_t cut = 0; cut < bytes.size(); cut += 3)
    EXPECT_FALSE(DecodePlan(std::span(bytes).first(cut)).has_value()) << "cut at " << cut;
  for (size_t i = 0; i < bytes.size(); ++i)
    for (const uint8_t flip : {0x01, 0x80, 0xff}) {
      std::vector<uint8_t> damaged = bytes;
      damaged[i] ^= flip;
      const Result<Plan> plan = DecodePlan(damaged);
      if (plan.has_value() && VerifyPlan(*plan, ReluSegment()).has_value()) EncodePlan(*plan);
    }
}

TEST(PlanKey, ChangesWithGuardTargetModeAndSegment) {
  const Plan plan = ReluPlan(1, 64);
  const PlanKey key = ComputePlanKey(plan);
  EXPECT_NE(ComputePlanKey(ReluPlan(1, 65)), key);
  Plan other = plan;
  other.target = "aarch64";
  EXPECT_NE(ComputePlanKey(other), key);
  other = plan;
  other.numeric_mode = NumericMode::kFast;
  EXPECT_NE(ComputePlanKey(other), key);
  other = plan;
  other.guard.inputs[0].contiguous = false;
  EXPECT_NE(ComputePlanKey(other), key);
  other = plan;
  other.steps[0].label = "another name";
  EXPECT_EQ(ComputePlanKey(other), key);
  other.tuned = true;
  const PlanKey tuned = ComputePlanKey(other);
  EXPECT_NE(tuned, key);
  other.weights = WeightForm::kAsGiven;
  const PlanKey both = ComputePlanKey(other);
  other.tuned = false;
  const std::set<PlanKey> keys = {key, tuned, both, ComputePlanKey(other)};
  EXPECT_EQ(keys.size(), 4u);
}

// Three temporaries, one after the other: made by step 0, then in place by steps 1 and 2.
Plan InPlacePlan() {
  Plan plan = ReluPlan(1, 64);
  plan.kernels.emplace_back();
  const Dim n = plan.symbols.SymbolDim(0), four = Dim::Const(4), one = Dim::Const(1);
  const Dim bytes = plan.symbols.Mul(n, Dim::Const(16));
  plan.buffers = {{bytes, 0, 1}, {bytes, 1, 2, 0}, {bytes, 2, 3, 1}};
  for (int32_t b = 0; b < 3; ++b)
    plan.values.push_back({StorageKind::kArena, b, DType::kF32, Dim::Const(0), {n, four}, {four, one}});
  const auto step = [&](int32_t from, int32_t to) {
    return PlanStep{KernelStep{0, {from, to}, {}, n, n, Dim::Const(0)}, {}, "step"};
  };
  plan.steps = {step(0, 2), step(2, 3), step(3, 4), step(4, 1)};
  return plan;
}

TEST(PlanCodec, WhatMayLieInPlaceIsKeptAndIsNoPartOfTheKey) {
  const Plan plan = InPlacePlan();
  ASSERT_TRUE(VerifyPlan(plan, ReluSegment()).has_value());
  const Plan back = DecodePlan(EncodePlan(plan)).value();
  EXPECT_EQ(back.buffers[0].in_place_of, -1);
  EXPECT_EQ(back.buffers[1].in_place_of, 0);
  EXPECT_EQ(back.buffers[2].in_place_of, 1);
  Plan apart = plan;
  apart.buffers[1].in_place_of = -1;
  EXPECT_EQ(ComputePlanKey(apart), ComputePlanKey(plan));
}

TEST(PlanBlocks, BuffersInPlaceAreOneBlockWhereTheirSizesAreEqual) {
  Plan plan = InPlacePlan();
  const int64_t values[] = {3};
  const ArenaBlocks chain = BlocksOf(plan, values, true).value();
  EXPECT_EQ(chain.blocks, (std::vector<ArenaBlock>{{48, 0, 3}}));
  EXPECT_EQ(chain.block_of, (std::vector<size_t>{0, 0, 0}));
  plan.buffers[1].bytes = Dim::Const(48);  // equal at n = 3 alone
  EXPECT_EQ(BlocksOf(plan, values, true).value().blocks.size(), 1u);
  const int64_t other[] = {4};
  const ArenaBlocks apart = BlocksOf(plan, other, true).value();
  EXPECT_EQ(apart.blocks, (std::vector<ArenaBlock>{{64, 0, 1}, {48, 1, 2}, {64, 2, 3}}));
  EXPECT_EQ(apart.bytes, (std::vector<int64_t>{64, 48, 64}));
  // Buffers lie in any order in the table.
  std::swap(plan.buffers[0], plan.buffers[2]);
  plan.buffers[0].in_place_of = 1;
  plan.buffers[1].in_place_of = 2;
  EXPECT_EQ(BlocksOf(plan, values, true).value().blocks, (std::vector<ArenaBlock>{{48, 0, 3}}));
}

TEST(PlanBlocks, InPlaceIsTakenWhereTheArenaIsATenthSmaller) {
  Plan plan = InPlacePlan();
  const int64_t values[] = {64};  // 1 KiB each, two of them alive at a time
  const BufferPlaces taken = PlaceBuffers(plan, values).value();
  EXPECT_TRUE(taken.in_place);
  EXPECT_EQ(taken.arena_bytes, 1024);
  EXPECT_EQ(taken.offsets, (std::vector<int64_t>{0, 0, 0}));
  plan.buffers.push_back({Dim::Const(8192), 0, 3});  // 10 KiB apart, 9 in place
  EXPECT_TRUE(PlaceBuffers(plan, values).value().in_place);
  plan.buffers.back().bytes = Dim::Const(9216);
  const BufferPlaces apart = PlaceBuffers(plan, values).value();
  EXPECT_FALSE(apart.in_place);
  EXPECT_EQ(apart.arena_bytes, 9216 + 2048);
  EXPECT_NE(apart.offsets[0], apart.offsets[1]);
}

TEST(PlanCodec, APlaceThatIsNotFreeIsRefused) {
  const std::pair<const char*, void (*)(Plan&)> lies[] = {
      {"a buffer that is not there", [](Plan& plan) { plan.buffers[1].in_place_of = 3; }},
      {"buffer -2", [](Plan& plan) { plan.buffers[1].in_place_of = -2; }},
      {"its own", [](Plan& plan) { plan.buffers[1].in_place_of = 1; }},
      {"of one that lives on", [](Plan& plan) { plan.buffers[0].last_step = 2; }},
      {"of one that is gone", [](Plan& plan) { plan.buffers[2].in_place_of = 0; }},
      {"of one that begins with it", [](Plan& plan) { plan.buffers[0].first_step = 1; }},
      {"each other's", [](Plan& plan) { plan.buffers[0].in_place_of = 1; }},
      {"a taken one", [](Plan& plan) { plan.buffers.push_back({plan.buffers[0].bytes, 1, 2, 0}); }},
      {"in a reference step", [](Plan& plan) { plan.steps[1].step = ReferenceStep{TensorOp::kRelu, {}, {2}, {3}}; }},
      {"alive behind the last step", [](Plan& plan) { plan.buffers.push_back({Dim::Const(64), 0, INT32_MAX}); }},
      {"behind the last step", [](Plan& plan) { plan.steps.resize(2); }}};
  for (const auto& [name, lie] : lies) {
    Plan plan = InPlacePlan();
    lie(plan);
    const Result<Plan> back = DecodePlan(EncodePlan(plan));
    EXPECT_FALSE(back.has_value() && VerifyPlan(*back, ReluSegment()).has_value()) << name;
  }
}

// A tuned plan with one kernel, whose forms were measured.
Plan TunedPlan() {
  Plan plan = ReluPlan(1, 64);
  plan.kernels.emplace_back();
  plan.tuned = true;
  plan.tuning = {{0, 1, {{"tile 8x3", 900}, {"tile 6x4", 700}}}};
  return plan;
}

TEST(PlanCodec, MeasurementsAreKeptAndAreNoPartOfTheKey) {
  const Plan plan = TunedPlan();
  const Plan back = DecodePlan(EncodePlan(plan)).value();
  EXPECT_TRUE(back.tuned);
  EXPECT_EQ(back.tuning, plan.tuning);
  EXPECT_TRUE(VerifyPlan(back, ReluSegment()).has_value());
  Plan other = plan;
  other.tuning[0].choices[1].ns = 650;
  EXPECT_EQ(ComputePlanKey(other), ComputePlanKey(plan));
}

TEST(PlanCodec, MeasurementsThatFitNoKernelOrNoFormAreRefused) {
  const std::pair<const char*, void (*)(Plan&)> lies[] = {
      {"of a plan that is not tuned", [](Plan& plan) { plan.tuned = false; }},
      {"more than kernels", [](Plan& plan) { plan.tuning.push_back(plan.tuning[0]); }},
      {"of a kernel that is not there", [](Plan& plan) { plan.tuning[0].kernel = 1; }},
      {"of kernel -1", [](Plan& plan) { plan.tuning[0].kernel = -1; }},
      {"a form that is not there", [](Plan& plan) { plan.tuning[0].chosen = 2; }},
      {"no forms", [](Plan& plan) { plan.tuning[0].choices.clear(); }},
      {"too many forms", [](Plan& plan) { plan.tuning[0].choices.resize(kTunedChoicesMax + 1); }},
      {"a long name", [](Plan& plan) { plan.tuning[0].choices[0].what.assign(kTunedTextMax + 1, 'x'); }}};
  for (const auto& [name, lie] : lies) {
    Plan plan = TunedPlan();
    lie(plan);
    const Result<Plan> back = DecodePlan(EncodePlan(plan));
    EXPECT_FALSE(back.has_value() && VerifyPlan(*back, ReluSegment()).has_value()) << name;
  }
}

}  // namespace
}  // namespace kiln
