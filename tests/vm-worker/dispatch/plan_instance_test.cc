#include "vm-worker/dispatch/plan_instance.h"

#include "tests/vm-worker/dispatch/plan_fixture.h"

namespace kiln {
namespace {

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
    Tensor y = Tensor::Allocate(DType::kF32, (*instance)->output_dims(0));
    EXPECT_EQ(y.dims(), (Dims{n, 4}));
    HeapMemory memory;
    void* outputs[] = {y.ref.data};
    ASSERT_TRUE((*instance)->Run({{&x.ref, 1}, outputs, nullptr, &memory, nullptr, nullptr}).has_value());
    for (int64_t i = 0; i < 4 * n; ++i) EXPECT_EQ(y.ref.as<float>()[i], i % 2 == 0 ? static_cast<float>(i) : 0.0f);
  }
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
}

}  // namespace
}  // namespace kiln
