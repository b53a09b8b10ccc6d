// A dispatcher beside a device: which plan answers, and what a device that fails does to calls.
#include "tests/vm-worker/dispatch/device_fixture.h"
#include "vm-worker/dispatch/dispatcher.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

using testing::DeviceLinker;
using testing::OpenDouble;

struct Counter final : CallObserver {
  void Interpreted(int, const Signature&, int64_t) override { ++interpreted; }
  void ShadowCandidate(int, const SegmentEntry&, const LinkedPlan&, bool) override {}
  void AnsweredByPlan(int, const SegmentEntry&, const LinkedPlan& plan) override { answered_by = &plan; }
  int interpreted = 0;
  const LinkedPlan* answered_by = nullptr;
};

struct SteppedClock final : Clock {
  int64_t NowNs() const override { return now_ns; }
  int64_t WallMs() const override { return 0; }
  int64_t now_ns = 1;
};

// One request thread with a lane of a device of the double.
class DeviceDispatch : public ::testing::Test {
 protected:
  void Open(const std::string& settings = "", CudaDevice::Options options = {}) {
    device_ = OpenDouble(settings, options);
    linker_.emplace(*device_);
    lane_ = *DeviceLane::Open(*device_);
    runtimes_.push_back(std::make_unique<SegmentRuntime>(epochs_));
    runtimes_[0]->sample_every = 1;
    dispatcher_.emplace(runtimes_, counters_, observer_,
                        DispatcherOptions{.instances_max = 8, .lane = lane_.get(), .clock = &clock_});
  }
  // The plan that answered; null: the interpreter did. The answer is checked either way.
  const LinkedPlan* Run(int64_t rows) {
    const Tensor x = testing::Numbers(rows);
    observer_.answered_by = nullptr;
    EpochScope scope(epochs_, reader_);
    const auto outputs = context_.Run(*program_, {&x.ref, 1}, {.hook = &*dispatcher_});
    EXPECT_TRUE(outputs.has_value()) << (outputs ? "" : ToString(outputs.error()));
    for (int64_t i = 0; outputs.has_value() && i < rows * 4; ++i)
      EXPECT_EQ(outputs->at(0).ref.as<float>()[i], std::max(0.0f, x.ref.as<float>()[i]));
    return observer_.answered_by;
  }

  std::unique_ptr<CudaDevice> device_;
  std::optional<DeviceLinker> linker_;
  std::unique_ptr<DeviceLane> lane_;
  EpochDomain epochs_;
  std::shared_ptr<const LoadedProgram> program_ = LoadedProgram::Load(testing::ReluProgram()).value();
  std::vector<std::unique_ptr<SegmentRuntime>> runtimes_;
  std::vector<SegmentCounters> counters_{1};
  Counter observer_;
  SteppedClock clock_;
  std::optional<Dispatcher> dispatcher_;
  VmContext context_;
  int reader_ = epochs_.RegisterReader();
};

TEST_F(DeviceDispatch, ADevicesPlanGoesBeforeAProcessorsOfTheSameTier) {
  Open();
  const auto device = linker_->Relu(0, 4096), processor = testing::Linked(testing::ReluPlan(0, 4096)),
             exact = testing::Linked(testing::ReluPlan(3, 3));
  runtimes_[0]->slot.Publish({processor, device, exact});
  EXPECT_EQ(Run(5), device.get());
  EXPECT_EQ(Run(3), exact.get()) << "an exact plan is more specific, wherever it runs";
  runtimes_[0]->slot.Publish({processor, device, exact, linker_->Relu(3, 3)});
  EXPECT_NE(Run(3), exact.get());
  EXPECT_TRUE(Run(3)->on_device());
  EXPECT_EQ(observer_.interpreted, 0);
}

TEST_F(DeviceDispatch, AThreadWithoutALaneRunsTheProcessors) {
  Open();
  const auto processor = testing::Linked(testing::ReluPlan(0, 4096));
  Dispatcher without(runtimes_, counters_, observer_, {.clock = &clock_});
  runtimes_[0]->slot.Publish({processor, linker_->Relu(0, 4096)});
  const Tensor x = testing::Numbers(2);
  EpochScope scope(epochs_, reader_);
  ASSERT_TRUE(context_.Run(*program_, {&x.ref, 1}, {.hook = &without}).has_value());
  EXPECT_EQ(observer_.answered_by, processor.get());
}

TEST_F(DeviceDispatch, ALostDeviceCostsNoCallAndTheProcessorsPlanTakesOver) {
  Open("fail=3:719");
  const auto device = linker_->Relu(0, 4096), processor = testing::Linked(testing::ReluPlan(0, 4096));
  runtimes_[0]->slot.Publish({processor, device});
  EXPECT_EQ(Run(5), device.get());
  EXPECT_EQ(Run(5), device.get());
  EXPECT_EQ(Run(5), nullptr) << "the call that met it is interpreted";
  EXPECT_TRUE(device_->lost());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Run(5), processor.get());
  EXPECT_EQ(Run(6), processor.get());
  EXPECT_EQ(observer_.interpreted, 1);
}

TEST_F(DeviceDispatch, ARefusedCallIsInterpretedAndNotedOnThePlan) {
  Open("fail=2:701");
  const auto device = linker_->Relu(0, 4096);
  runtimes_[0]->slot.Publish({device});
  EXPECT_EQ(Run(5), device.get());
  EXPECT_FALSE(device->device().refusal->why().has_value());
  EXPECT_EQ(Run(5), nullptr);
  ASSERT_TRUE(device->device().refusal->why().has_value());
  EXPECT_NE(device->device().refusal->why()->find("701"), std::string::npos);
}

// What has no room on the device is answered by the processor's plan, and tried again later.
TEST_F(DeviceDispatch, WithoutRoomOnTheDeviceTheProcessorsPlanAnswersForAWhile) {
  Open("", {.memory_bytes = 8 << 20});
  auto others = device_->Allocate(MemoryUse::kWeights, 7 << 20).value();
  const auto device = linker_->Relu(0, 4096), processor = testing::Linked(testing::ReluPlan(0, 4096));
  runtimes_[0]->slot.Publish({processor, device});
  EXPECT_EQ(Run(5), processor.get());
  EXPECT_EQ(Run(5), processor.get());
  others = {};
  EXPECT_EQ(Run(5), processor.get()) << "not asked at every call";
  clock_.now_ns += 3'600'000'000'000;
  EXPECT_EQ(Run(5), device.get());
  EXPECT_EQ(observer_.interpreted, 0);
}

TEST_F(DeviceDispatch, StepsAreMeasuredOnTheDeviceToo) {
  Open();
  struct Timer final : CallObserver {
    void Interpreted(int, const Signature&, int64_t) override {}
    void ShadowCandidate(int, const SegmentEntry&, const LinkedPlan&, bool) override {}
    void Timed(int, const SegmentEntry&, const LinkedPlan& plan, int64_t arena, const StepTiming& timing) override {
      steps = timing.step_ns;
      arena_bytes = arena;
      on_device = plan.on_device();
    }
    std::vector<int64_t> steps;
    int64_t arena_bytes = 0;
    bool on_device = false;
  } timer;
  Dispatcher timed(runtimes_, counters_, timer, {.lane = lane_.get()});
  runtimes_[0]->slot.Publish({linker_->Relu(0, 4096)});
  runtimes_[0]->timing_wanted = 1;
  const Tensor x = testing::Numbers(20);
  EpochScope scope(epochs_, reader_);
  ASSERT_TRUE(context_.Run(*program_, {&x.ref, 1}, {.hook = &timed}).has_value());
  ASSERT_EQ(timer.steps.size(), 1u);
  EXPECT_GT(timer.steps[0], 0);
  EXPECT_GT(timer.arena_bytes, 0);
  EXPECT_TRUE(timer.on_device);
}

// Plans of a device leave as others do: calls that run them finish, then modules and memory are free.
TEST_F(DeviceDispatch, WhatLeavesTheSlotIsFreeAfterItsReaders) {
  Open();
  runtimes_[0]->slot.Publish({linker_->Relu(0, 4096)});
  EXPECT_NE(Run(5), nullptr);
  EXPECT_EQ(testing::DoubleCount("modules"), 1u);
  const Tensor x = testing::Numbers(2);
  {
    EpochScope scope(epochs_, reader_);
    runtimes_[0]->slot.Publish({});
    epochs_.Reclaim();
    EXPECT_EQ(testing::DoubleCount("modules"), 1u) << "a reader may run it still";
  }
  epochs_.Reclaim();
  EXPECT_EQ(testing::DoubleCount("modules"), 0u);
  EXPECT_EQ(Run(5), nullptr);
}

}  // namespace
}  // namespace kiln
