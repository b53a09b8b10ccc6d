// A worker with a device: which target it asks for, what it does when nobody makes plans for the device, when the
// device refuses them, has no room, gives wrong results or is lost.
#include <gmock/gmock.h>

#include "tests/vm-worker/dispatch/device_fixture.h"
#include "tests/vm-worker/tiering/fake_fleet.h"

namespace kiln {
namespace {

using testing::DeviceReluPlan;
using ::testing::HasSubstr;
using testing::OpenDouble;
using testing::SteppedWorker;
using testing::TestKernel;

constexpr int64_t kHourMs = 3'600'000;

struct DeviceWorker : SteppedWorker {
  explicit DeviceWorker(CudaDevice& on, const std::string& kernel = "relu")
      : SteppedWorker(TierOptions{.device = &on}) {
    fleet.make_device_plan = [kernel](int64_t min, int64_t max) { return DeviceReluPlan(min, max, kernel); };
    fleet.device_blobs = {TestKernel(kernel)};
  }
  size_t Asked(const std::string& target) const {
    return static_cast<size_t>(std::ranges::count(fleet.compile_targets, target));
  }
  std::string HostTarget() const { return std::string(InfoOf(HostTargets().front()).name); }
  // Of the plan that is published; empty: none.
  std::string PublishedTarget() const {
    for (const PlanStatus& plan : Status().plans)
      if (plan.published) return plan.plan->plan().target;
    return "";
  }
};

TEST(DevicePlans, TheDevicesTargetIsAskedForAndAnswers) {
  const auto device = OpenDouble();
  DeviceWorker worker(*device);
  worker.Live(5'000);
  EXPECT_EQ(worker.fleet.compile_targets, std::vector<std::string>{"sm_90"});
  EXPECT_EQ(worker.PublishedTarget(), "sm_90");
  EXPECT_GT(worker.ByPlan(), 0u);
  EXPECT_EQ(worker.wrong_answers, 0u);
  EXPECT_EQ(worker.tiers.Stats().shadow_clean, 3u);
  EXPECT_THAT(worker.tiers.DeviceText(), HasSubstr("compute capability 9.0"));
  // In steady state nothing is allocated there.
  const uint64_t allocations = device->counters().allocations;
  worker.Live(20'000);
  EXPECT_EQ(device->counters().allocations, allocations);
}

TEST(DevicePlans, WhatOthersHaveProvenAnswersAtOnceAndIsSampled) {
  const auto device = OpenDouble();
  DeviceWorker worker(*device);
  worker.fleet.can_compile = false;
  worker.fleet.Publish(DeviceReluPlan(0, 4096), 3, {TestKernel("relu")});
  worker.Live(200);
  EXPECT_EQ(worker.PublishedTarget(), "sm_90");
  EXPECT_EQ(worker.model->runtime(0).sample_every.load(), worker.tiers.options().sample_every);
}

TEST(DevicePlans, AWorkerWithoutADeviceLeavesThem) {
  SteppedWorker worker;
  worker.fleet.Publish(DeviceReluPlan(0, 4096), 3, {TestKernel("relu")});
  worker.Live(5'000);
  for (const PlanStatus& plan : worker.Status().plans) EXPECT_FALSE(plan.plan->on_device());
  EXPECT_EQ(worker.fleet.compile_targets, std::vector<std::string>{std::string(InfoOf(HostTargets().front()).name)});
}

// A compile service without NVRTC: plans for the processor at once, and the device's are asked for seldom.
TEST(DevicePlans, AServiceThatMakesNoneIsRememberedAndTheProcessorsAreAskedFor) {
  const auto device = OpenDouble();
  DeviceWorker worker(*device);
  worker.fleet.device_fails = ErrorCode::kUnsupported;
  worker.Live(5'000);
  EXPECT_EQ(worker.Asked("sm_90"), 1u);
  EXPECT_EQ(worker.PublishedTarget(), worker.HostTarget());
  EXPECT_THAT(worker.tiers.DeviceText(), HasSubstr("makes no plans for it: no NVRTC here"));
  worker.Live(kHourMs, 1'000);
  EXPECT_GE(worker.Asked("sm_90"), 4u);
  EXPECT_LE(worker.Asked("sm_90"), 12u) << "once a minute at first, then every ten";
  EXPECT_EQ(worker.Asked(worker.HostTarget()), 1u);
  // A service that does comes up: its plan takes over.
  worker.fleet.device_fails.reset();
  worker.Live(1'300'000, 1'000);
  EXPECT_EQ(worker.wrong_answers, 0u);
  const auto before = device->counters().calls.load();
  worker.Live(1'000);
  EXPECT_GT(device->counters().calls, before);
  EXPECT_THAT(worker.tiers.DeviceText(), ::testing::Not(HasSubstr("makes no plans")));
}

TEST(DevicePlans, OneSegmentThatCannotBeMadeForItSaysNothingOfOthers) {
  const auto device = OpenDouble();
  DeviceWorker worker(*device);
  worker.fleet.device_fails = ErrorCode::kCompileFailed;
  worker.Live(5'000);
  EXPECT_EQ(worker.Asked("sm_90"), 1u);
  EXPECT_EQ(worker.PublishedTarget(), worker.HostTarget());
  EXPECT_THAT(worker.tiers.DeviceText(), ::testing::Not(HasSubstr("makes no plans")));
  worker.Live(kHourMs, 1'000);
  EXPECT_LE(worker.Asked("sm_90"), 8u);
}

TEST(DevicePlans, AWrongKernelIsFoundBeforeItAnswersAnybody) {
  const auto device = OpenDouble();
  DeviceWorker worker(*device, "wrong");
  worker.Live(30'000);
  EXPECT_EQ(worker.wrong_answers, 0u);
  EXPECT_GE(worker.tiers.Stats().shadow_mismatches, 1u);
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kMismatch), 1u);
  EXPECT_TRUE(worker.fleet.reproductions.empty()) << "the compile service has no device to run it on";
  EXPECT_EQ(worker.PublishedTarget(), worker.HostTarget());
  EXPECT_FALSE(device->lost());
}

TEST(DevicePlans, OneThatWritesBesideItsBuffersIsAFault) {
  const auto device = OpenDouble();
  DeviceWorker worker(*device, "straying");
  worker.Live(30'000);
  EXPECT_EQ(worker.wrong_answers, 0u);
  EXPECT_GE(worker.tiers.Stats().shadow_faults, 1u);
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kFault), 1u);
  EXPECT_FALSE(device->lost());
  EXPECT_EQ(worker.PublishedTarget(), worker.HostTarget());
}

TEST(DevicePlans, OneThatReadsBesideItsBuffersIsFound) {
  const auto device = OpenDouble();
  DeviceWorker worker(*device, "reading_beside");
  worker.Live(30'000);
  EXPECT_EQ(worker.wrong_answers, 0u);
  EXPECT_GE(worker.tiers.Stats().shadow_mismatches, 1u);
  EXPECT_EQ(worker.PublishedTarget(), worker.HostTarget());
}

// A fault in a shadow run costs the process its device, and nobody an answer; the plan is accused.
TEST(DevicePlans, AFaultLosesTheDeviceAndAccusesThePlan) {
  const auto device = OpenDouble();
  DeviceWorker worker(*device, "faulting");
  worker.Live(30'000);
  EXPECT_TRUE(device->lost());
  EXPECT_EQ(worker.wrong_answers, 0u);
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kFault), 1u);
  EXPECT_EQ(worker.fleet.marks.size(), 1u) << "remembered over a restart";
  EXPECT_EQ(worker.PublishedTarget(), worker.HostTarget());
  EXPECT_EQ(worker.Asked("sm_90"), 1u);
  EXPECT_THAT(worker.tiers.DeviceText(), HasSubstr("lost: "));
}

// A proven plan during whose runs the device breaks for reasons of its own: every call is answered, plans for the
// processor follow, and the plan is not accused.
TEST(DevicePlans, ADeviceThatBreaksInUseCostsNoAnswer) {
  const auto device = OpenDouble("fail=30:214");
  DeviceWorker worker(*device);
  worker.Live(1'000);
  EXPECT_EQ(worker.PublishedTarget(), "sm_90");
  worker.Live(10'000);
  EXPECT_TRUE(device->lost());
  EXPECT_EQ(worker.wrong_answers, 0u);
  EXPECT_EQ(worker.PublishedTarget(), worker.HostTarget());
  EXPECT_EQ(worker.fleet.Reports(cache::ReportKind::kFault), 0u);
  EXPECT_TRUE(worker.fleet.marks.empty());
  EXPECT_GT(worker.Status().misses.calls[static_cast<size_t>(MissReason::kDeviceLost)] +
                worker.Status().misses.calls[static_cast<size_t>(MissReason::kNotRun)],
            0u);
  const uint64_t by_plan = worker.ByPlan();
  worker.Live(1'000);
  EXPECT_GT(worker.ByPlan(), by_plan);
}

TEST(DevicePlans, OneThatTheDriverRefusesInUseGivesWayToTheProcessors) {
  const auto device = OpenDouble("fail=30:701");
  DeviceWorker worker(*device);
  worker.Live(1'000);
  EXPECT_EQ(worker.PublishedTarget(), "sm_90");
  worker.Live(4'000);
  EXPECT_FALSE(device->lost());
  EXPECT_EQ(worker.wrong_answers, 0u);
  EXPECT_EQ(worker.PublishedTarget(), worker.HostTarget());
}

TEST(DevicePlans, ImagesThatTheDriverDoesNotTakeAreRefusedAndTheProcessorsAskedFor) {
  const auto device = OpenDouble("driver=12040");
  DeviceWorker worker(*device);
  const std::vector<uint8_t> later = TestKernel("relu", Target::kSm90, 13000);
  worker.fleet.make_device_plan = [&](int64_t min, int64_t max) {
    Plan plan = DeviceReluPlan(min, max);
    plan.kernels = {HashBytes(later)};
    return plan;
  };
  worker.fleet.device_blobs = {later};
  worker.Live(5'000);
  EXPECT_EQ(worker.PublishedTarget(), worker.HostTarget());
  EXPECT_EQ(worker.Asked("sm_90"), 1u);
  worker.Live(kHourMs, 1'000);
  EXPECT_LE(worker.Asked("sm_90"), 20u) << "its pause doubles";
}

TEST(DevicePlans, WithoutRoomForItsKernelsTheProcessorsAreAskedForAndLaterTheyAgain) {
  const auto device = OpenDouble("", {.memory_bytes = 16 << 20});
  auto others = device->Allocate(MemoryUse::kWeights, (16 << 20) - 100).value();
  DeviceWorker worker(*device);
  worker.Live(5'000);
  EXPECT_EQ(worker.Asked("sm_90"), 1u);
  EXPECT_EQ(worker.PublishedTarget(), worker.HostTarget());
  EXPECT_FALSE(device->lost());
  others = {};
  worker.Live(600'000, 1'000);
  const auto calls = device->counters().calls.load();
  worker.Live(1'000);
  EXPECT_GT(device->counters().calls, calls) << "it has room now, and goes before the processor's";
  EXPECT_EQ(worker.wrong_answers, 0u);
}

}  // namespace
}  // namespace kiln
