// Plans on a device: what goes where and when, and what an unproven one is watched for.
#include "vm-worker/dispatch/device_instance.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <thread>

#include "tests/vm-worker/dispatch/device_fixture.h"

namespace kiln {
namespace {

using testing::DeviceLinker;
using testing::DeviceReluPlan;
using testing::DoubleCount;
using ::testing::HasSubstr;
using testing::Numbers;
using testing::OpenDouble;
using testing::RunOnce;
using testing::TestKernel;

std::unique_ptr<DeviceInstance> Instance(const std::shared_ptr<const LinkedPlan>& plan, int64_t n,
                                         DeviceTrust trust = DeviceTrust::kProven) {
  const int64_t values[] = {n};
  auto instance = DeviceInstance::Instantiate(plan, values, trust);
  EXPECT_TRUE(instance.has_value()) << (instance.has_value() ? "" : ToString(instance.error()));
  return instance.has_value() ? *std::move(instance) : nullptr;
}

bool IsRelu(const Tensor& x, const std::vector<float>& y) {
  for (size_t i = 0; i < y.size(); ++i)
    if (y[i] != std::max(0.0f, x.ref.as<float>()[i])) return false;
  return true;
}

TEST(DeviceInstance, RunsAtEverySizeAndAllocatesNothingOnceItHasGrown) {
  const auto device = OpenDouble();
  DeviceLinker linker(*device);
  const auto plan = linker.Relu(0, 4096);
  auto lane = *DeviceLane::Open(*device);
  uint64_t allocations = 0;
  for (int round = 0; round < 2; ++round)
    for (const int64_t n : {4096, 0, 1, 3, 17, 64}) {
      const auto instance = Instance(plan, n);
      const Tensor x = Numbers(n);
      const auto y = RunOnce(*instance, *lane, x);
      ASSERT_TRUE(y.has_value()) << ToString(y.error());
      EXPECT_EQ(y->size(), static_cast<size_t>(n * 4));
      EXPECT_TRUE(IsRelu(x, *y)) << n;
      if (allocations == 0) allocations = device->counters().allocations;
    }
  EXPECT_EQ(device->counters().allocations, allocations);
  EXPECT_EQ(DoubleCount("copies_while_running"), 0u);
}

TEST(DeviceInstance, PlansOfTheOtherKindHaveNone) {
  const auto device = OpenDouble();
  DeviceLinker linker(*device);
  const int64_t values[] = {2};
  EXPECT_FALSE(DeviceInstance::Instantiate(testing::Linked(testing::ReluPlan(0, 4096)), values).has_value());
  EXPECT_FALSE(PlanInstance::Instantiate(linker.Relu(0, 4096), values).has_value());
}

TEST(DeviceInstance, KernelsThatTakeOtherArgumentsThanStepsGiveAreRefused) {
  const auto device = OpenDouble();
  DeviceLinker linker(*device);
  Plan plan = DeviceReluPlan(0, 4096);
  std::get<KernelStep>(plan.steps[0].step).pointers.push_back(1);
  EXPECT_EQ(linker.Link(plan, {TestKernel("relu")}).error().code, ErrorCode::kIntegrityFailure);
  plan = DeviceReluPlan(0, 4096);
  std::get<KernelStep>(plan.steps[0].step).scratch_bytes = Dim::Const(64);
  const auto scratch = linker.Link(plan, {TestKernel("relu")});
  ASSERT_FALSE(scratch.has_value());
  EXPECT_THAT(scratch.error().message, HasSubstr("scratch"));
}

// A random plan of steps that each read a region and write one: kernels (Relu, or |x|), and reference steps (Relu, Neg,
// Abs). Regions are whole buffers or a half of one, so that what both sides write of one buffer has to come together.
class RandomPlan {
 public:
  explicit RandomPlan(uint64_t seed) : random_(seed) {
    plan_ = DeviceReluPlan(0, 4096);
    plan_.kernels = {HashBytes(TestKernel("relu")), HashBytes(TestKernel("wrong"))};
    const int buffers = 1 + Any(4), steps = 2 + Any(10);
    const Dim n = plan_.symbols.SymbolDim(0), four = Dim::Const(4), one = Dim::Const(1);
    const Dim elements = plan_.symbols.Mul(n, four);
    plan_.steps.clear();
    for (int b = 0; b < buffers; ++b) {
      plan_.buffers.push_back({plan_.symbols.Mul(elements, Dim::Const(8)), 0, steps});
      for (const Dim offset : {Dim::Const(0), elements})
        plan_.values.push_back({StorageKind::kArena, b, DType::kF32, offset, {n, four}, {four, one}});
    }
    for (PlanBuffer& buffer : plan_.buffers) buffer.last_step = steps;
    written_.assign(plan_.values.size(), false);
    written_[0] = true;
    for (int s = 0; s <= steps; ++s) AddStep(s == steps ? 1 : 2 + Any(2 * buffers), elements);
  }
  const Plan& plan() const { return plan_; }

  std::vector<float> Expected(const Tensor& x) const {
    std::vector<std::vector<float>> values(plan_.values.size());
    values[0].assign(x.ref.as<float>(), x.ref.as<float>() + x.ref.elements());
    for (const Step& step : steps_) {
      values[static_cast<size_t>(step.to)] = values[static_cast<size_t>(step.from)];
      for (float& v : values[static_cast<size_t>(step.to)])
        v = step.op == TensorOp::kRelu ? std::max(v, 0.0f) : step.op == TensorOp::kNeg ? -v : std::abs(v);
    }
    return values[1];
  }

 private:
  struct Step {
    int32_t from, to;
    TensorOp op;
  };
  int Any(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  void AddStep(int32_t to, Dim elements) {
    int32_t from = 0;
    do from = Any(static_cast<int>(plan_.values.size()));
    while (!written_[static_cast<size_t>(from)] || from == 1 || from == to);
    written_[static_cast<size_t>(to)] = true;
    const int kind = Any(5);
    if (kind < 2) {
      steps_.push_back({from, to, kind == 0 ? TensorOp::kRelu : TensorOp::kAbs});
      plan_.steps.push_back({KernelStep{kind, {from, to}, {elements}, elements, elements, Dim::Const(0)}, {0}, "k"});
      return;
    }
    const TensorOp op = kind == 2 ? TensorOp::kRelu : kind == 3 ? TensorOp::kNeg : TensorOp::kAbs;
    steps_.push_back({from, to, op});
    plan_.steps.push_back({ReferenceStep{op, {}, {from}, {to}}, {0}, "r"});
  }
  std::mt19937_64 random_;
  Plan plan_;
  std::vector<bool> written_;
  std::vector<Step> steps_;
};

TEST(DeviceInstance, WhatEitherSideWritesTheOtherReads) {
  const auto device = OpenDouble();
  DeviceLinker linker(*device);
  auto lane = *DeviceLane::Open(*device);
  const uint64_t first = 1;
  for (uint64_t seed = first; seed < first + 300; ++seed) {
    const RandomPlan random(seed);
    const auto plan = linker.Link(random.plan(), {TestKernel("relu"), TestKernel("wrong")});
    ASSERT_TRUE(plan.has_value()) << seed << ": " << ToString(plan.error());
    for (const DeviceTrust trust : {DeviceTrust::kProven, DeviceTrust::kUnproven}) {
      const auto instance = Instance(*plan, 9, trust);
      const Tensor x = Numbers(9);
      const auto y = RunOnce(*instance, *lane, x);
      ASSERT_TRUE(y.has_value()) << "seed " << seed << ": " << ToString(y.error());
      EXPECT_EQ(*y, random.Expected(x)) << "seed " << seed;
    }
  }
  EXPECT_EQ(DoubleCount("copies_while_running"), 0u);
}

TEST(DeviceInstance, OnlyWhatASideTouchesIsThere) {
  const auto device = OpenDouble();
  DeviceLinker linker(*device);
  Plan plan = testing::ReluPlan(0, 4096);  // a reference step alone: nothing goes to the device
  plan.target = "sm_90";
  const auto linked = linker.Link(plan, {});
  ASSERT_TRUE(linked.has_value()) << ToString(linked.error());
  auto lane = *DeviceLane::Open(*device);
  const auto instance = Instance(*linked, 5);
  EXPECT_EQ(instance->device_bytes(), 0);
  const Tensor x = Numbers(5);
  EXPECT_TRUE(IsRelu(x, *RunOnce(*instance, *lane, x)));
  EXPECT_EQ(device->counters().bytes_in, 0u);
  EXPECT_EQ(device->counters().bytes_out, 0u);
  EXPECT_EQ(Instance(linker.Relu(0, 4096), 5)->host_bytes(), 0);
}

TEST(DeviceInstance, ADeadlineThatPassesEndsTheRunAndNothingIsLost) {
  const auto device = OpenDouble();
  DeviceLinker linker(*device);
  const auto linked = linker.Relu(0, 4096);
  auto lane = *DeviceLane::Open(*device);
  const auto instance = Instance(linked, 4);
  const Tensor x = Numbers(4);
  const auto late = RunOnce(*instance, *lane, x, SystemClock().NowNs() - 1);
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::kDeadlineExceeded);
  const auto y = RunOnce(*instance, *lane, x);
  ASSERT_TRUE(y.has_value()) << ToString(y.error());
  EXPECT_TRUE(IsRelu(x, *y));
}

TEST(DeviceInstance, AnUnprovenPlanThatWritesBesideItsBuffersIsFound) {
  const auto device = OpenDouble();
  DeviceLinker linker(*device);
  auto lane = *DeviceLane::Open(*device);
  const auto straying = linker.Relu(0, 4096, "straying");
  for (const int64_t n : {1, 16, 17}) {
    const Tensor x = Numbers(n);
    const auto ran = RunOnce(*Instance(straying, n, DeviceTrust::kUnproven), *lane, x);
    ASSERT_FALSE(ran.has_value()) << n;
    EXPECT_EQ(ran.error().code, ErrorCode::kIntegrityFailure);
    EXPECT_THAT(ran.error().message, HasSubstr("outside its buffers"));
    EXPECT_FALSE(device->lost());
    EXPECT_TRUE(RunOnce(*Instance(linker.Relu(0, 4096), n, DeviceTrust::kUnproven), *lane, x).has_value());
  }
}

TEST(DeviceInstance, WhatAnUnprovenPlanReadsBesideItsBuffersIsNoNumber) {
  const auto device = OpenDouble();
  DeviceLinker linker(*device);
  auto lane = *DeviceLane::Open(*device);
  const auto reading = linker.Relu(0, 4096, "reading_beside");
  const auto y = RunOnce(*Instance(reading, 17, DeviceTrust::kUnproven), *lane, Numbers(17));
  ASSERT_TRUE(y.has_value()) << ToString(y.error());
  EXPECT_TRUE(std::ranges::any_of(*y, [](float v) { return std::isnan(v); }));
}

// y = x + w in a segment of its own.
const Segment& SumSegment() {
  static const Segment segment = [] {
    const Program program = ParseProgram(R"(program "p" {
        symbol n in [0, 4096]
        constant w : f32[1024] = splat 0.5
        func main(%x: f32[n, 1024]) -> (%y) {
          %w : f32[1024] = Constant() {value = @w}
          %y : f32[n, 1024] = Add(%x, %w)
        }
      })")
                                .value();
    return CanonicalSegment(program, FindSegments(program).at(0)).value();
  }();
  return segment;
}

Plan SumPlan(int64_t max) {
  const Segment& segment = SumSegment();
  Plan plan;
  plan.segment = segment.id;
  plan.target = "sm_90";
  plan.abi = KILN_KERNEL_ABI;
  plan.numeric_mode = NumericMode::kDefault;
  plan.symbols = segment.body.symbols;
  plan.guard.symbols = {{0, max, 1}};
  plan.guard.inputs = {{true, AlignmentClass::kElement}};
  plan.kernels = {HashBytes(TestKernel("adds"))};
  const Dim n = plan.symbols.SymbolDim(0), row = Dim::Const(1024), zero = Dim::Const(0), one = Dim::Const(1);
  const Dim elements = plan.symbols.Mul(n, row);
  plan.values = {{StorageKind::kInput, 0, DType::kF32, zero, {n, row}, {row, one}},
                 {StorageKind::kOutput, 0, DType::kF32, zero, {n, row}, {row, one}},
                 {StorageKind::kWeight, 0, DType::kF32, zero, {row}, {one}}};
  plan.outputs = {1};
  plan.steps = {{KernelStep{0, {0, 1, 2}, {elements, row}, elements, elements, zero}, {0}, "add"}};
  return plan;
}

TEST(DeviceInstance, WeightsAreOnTheDeviceOnceForAllPlans) {
  const auto device = OpenDouble("", {.memory_bytes = 64 << 20});
  DeviceLinker linker(*device);
  const Tensor w = Tensor::Of<float>(DType::kF32, {1024}, std::vector<float>(1024, 0.5f));
  {
    const auto first = linker.Link(SumPlan(4096), {TestKernel("adds")}, SumSegment(), {&w.ref, 1});
    const auto second = linker.Link(SumPlan(100), {TestKernel("adds")}, SumSegment(), {&w.ref, 1});
    ASSERT_TRUE(first.has_value() && second.has_value()) << ToString(first.error());
    EXPECT_EQ(device->budget().used(MemoryUse::kWeights), 4096);
    auto lane = *DeviceLane::Open(*device);
    const Tensor x = Tensor::Zeros(DType::kF32, {3, 1024});
    for (const auto& plan : {*first, *second}) {
      const auto y = RunOnce(*Instance(plan, 3), *lane, x);
      ASSERT_TRUE(y.has_value()) << ToString(y.error());
      EXPECT_EQ(*y, std::vector<float>(3 * 1024, 0.5f));
    }
  }
  EXPECT_EQ(device->budget().used(), 0) << "nothing is left when the plans are gone";
  EXPECT_EQ(DoubleCount("live_allocations"), 0u);
}

TEST(DeviceInstance, APlanWhoseWeightsHaveNoRoomIsRefusedWhole) {
  const auto device = OpenDouble("", {.memory_bytes = 20'000});
  DeviceLinker linker(*device);
  const auto block = *device->Allocate(MemoryUse::kArenas, 18'000);
  const Tensor w = Tensor::Zeros(DType::kF32, {1024});
  const auto linked = linker.Link(SumPlan(4096), {TestKernel("adds")}, SumSegment(), {&w.ref, 1});
  ASSERT_FALSE(linked.has_value());
  EXPECT_EQ(linked.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(linked.error().message, HasSubstr("--device-memory"));
  EXPECT_EQ(device->budget().used(), block.bytes());
  EXPECT_FALSE(device->lost());
}

TEST(DeviceInstance, ThreadsRunBesideEachOther) {
  const auto device = OpenDouble();
  DeviceLinker linker(*device);
  const auto plan = linker.Relu(0, 4096);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto lane = *DeviceLane::Open(*device);
      const auto instance = Instance(plan, 10 + t);
      const Tensor x = Numbers(10 + t);
      for (int i = 0; i < 50; ++i) {
        const auto y = RunOnce(*instance, *lane, x);
        right += y.has_value() && IsRelu(x, *y) ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 200);
}

}  // namespace
}  // namespace kiln
