// Kernels on a device: loading, launching, and what their faults do.
#include "vm-worker/device/device_kernels.h"

#include <gmock/gmock.h>

#include "common/base/hash.h"
#include "tests/support/cuda_driver/double_device.h"

namespace kiln {
namespace {

using testing::DoubleCount;
using ::testing::HasSubstr;
using testing::OpenDouble;
using testing::TestKernel;

std::shared_ptr<const KernelImages> Images(const std::vector<std::vector<uint8_t>>& blobs) {
  std::vector<KernelId> ids;
  for (const auto& blob : blobs) ids.push_back(HashBytes(blob));
  return VerifyImages(ids, blobs, Target::kSm90).value();
}

// y = kernel(x) of `elements` numbers on a lane of its own; `deadline_ns` as of DeviceLane::Wait.
struct Launched {
  explicit Launched(CudaDevice& on) : device(on), lane(*DeviceLane::Open(on)) {}
  Status Run(const DeviceKernel& kernel, int64_t elements, int64_t deadline_ns = 0) {
    x.resize(static_cast<size_t>(elements));
    y.assign(x.size(), -5);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 3;
    const int64_t bytes = elements * 4, at = (bytes / 256 + 1) * 256;
    RETURN_IF_ERROR(lane->Reserve(2 * at));
    RETURN_IF_ERROR(lane->Begin(plan, false));
    const Status ran = [&]() -> Status {
      RETURN_IF_ERROR(lane->Upload(lane->arena(), x.data(), bytes));
      int64_t words[3] = {static_cast<int64_t>(lane->arena()), static_cast<int64_t>(lane->arena()) + at, elements};
      RETURN_IF_ERROR(lane->Launch(kernel, words, elements));
      RETURN_IF_ERROR(lane->Wait(deadline_ns));
      RETURN_IF_ERROR(lane->Download(y.data(), lane->arena() + static_cast<cuda::Pointer>(at), bytes));
      return lane->Wait(0);
    }();
    lane->End(!ran.has_value(), held);
    return ran;
  }
  bool IsRelu() const {
    for (size_t i = 0; i < x.size(); ++i)
      if (y[i] != std::max(0.0f, x[i])) return false;
    return true;
  }
  CudaDevice& device;
  std::unique_ptr<DeviceLane> lane;
  Digest plan = HashBytes(std::vector<uint8_t>{7});
  std::shared_ptr<int> held = std::make_shared<int>();
  std::vector<float> x, y;
};

TEST(KernelImages, AreWhatTheirIdsName) {
  const std::vector<uint8_t> blob = TestKernel("relu");
  const KernelId id = HashBytes(blob);
  EXPECT_TRUE(VerifyImages({&id, 1}, {blob}, Target::kSm90).has_value());
  std::vector<uint8_t> damaged = blob;
  damaged.back() ^= 1;
  EXPECT_EQ(VerifyImages({&id, 1}, {damaged}, Target::kSm90).error().code, ErrorCode::kIntegrityFailure);
  EXPECT_EQ(VerifyImages({&id, 1}, {}, Target::kSm90).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(VerifyImages({&id, 1}, {blob}, Target::kSm80).error().code, ErrorCode::kTargetMismatch);
  const std::vector<uint8_t> code = BuildKernelBlob(Target::kX86V3, 0, std::vector<uint8_t>(10, 0xc3));
  const KernelId other = HashBytes(code);
  EXPECT_EQ(VerifyImages({&other, 1}, {code}, Target::kSm90).error().code, ErrorCode::kTargetMismatch);
}

TEST(DeviceModules, AKernelIsLoadedOnceForAllPlans) {
  const auto device = OpenDouble();
  DeviceModules modules(*device);
  {
    const auto images = Images({TestKernel("relu")});
    const auto first = modules.Load(*images), second = modules.Load(*images);
    ASSERT_TRUE(first.has_value() && second.has_value()) << ToString(first.error());
    EXPECT_EQ(DoubleCount("modules"), 1u);
    EXPECT_EQ((**first)[0].function, (**second)[0].function);
    EXPECT_GT(device->budget().used(MemoryUse::kPlans), 0);
  }
  EXPECT_EQ(DoubleCount("modules"), 0u);
  EXPECT_EQ(device->budget().used(), 0);
}

TEST(DeviceModules, WhatTheDriverDoesNotTakeIsRefusedAndNothingIsLost) {
  const auto device = OpenDouble("driver=12040");
  DeviceModules modules(*device);
  const auto no_image = Images({BuildDeviceBlob(
      Target::kSm90, {.threads = 32, .items_per_block = 1, .driver_version = 12000}, std::vector<uint8_t>(100, 0x7f))});
  EXPECT_EQ(modules.Load(*no_image).error().code, ErrorCode::kTargetMismatch);
  const auto later = modules.Load(*Images({TestKernel("relu", Target::kSm90, 13000)}));
  ASSERT_FALSE(later.has_value());
  EXPECT_EQ(later.error().code, ErrorCode::kTargetMismatch);
  EXPECT_THAT(later.error().message, HasSubstr("13000"));
  EXPECT_FALSE(device->lost());
  EXPECT_EQ(DoubleCount("modules"), 0u);
}

TEST(DeviceLane, AKernelRunsOverWholeRangesOnly) {
  const auto device = OpenDouble();
  DeviceModules modules(*device);
  const auto kernels = *modules.Load(*Images({TestKernel("relu")}));
  Launched run(*device);
  for (int64_t elements : {0, 1, 63, 64, 65, 5000}) {
    ASSERT_TRUE(run.Run((*kernels)[0], elements).has_value());
    EXPECT_TRUE(run.IsRelu()) << elements;
  }
  EXPECT_EQ(DoubleCount("copies_while_running"), 0u);
}

// A fault in a kernel: the device is lost to the process, with the plan that ran as the suspect; everything after it
// fails at once, and nothing is freed that the driver still holds.
TEST(CudaDevice, AFaultLosesItAndNamesThePlan) {
  const auto device = OpenDouble();
  DeviceModules modules(*device);
  auto kernels = *modules.Load(*Images({TestKernel("faulting"), TestKernel("relu")}));
  Launched run(*device), other(*device);
  ASSERT_TRUE(other.Run((*kernels)[1], 10).has_value());
  const Status ran = run.Run((*kernels)[0], 10);
  ASSERT_FALSE(ran.has_value());
  EXPECT_EQ(ran.error().code, ErrorCode::kIntegrityFailure);
  EXPECT_TRUE(device->lost());
  EXPECT_TRUE(device->loss().by_kernel);
  EXPECT_EQ(device->loss().suspects, std::vector{run.plan});
  EXPECT_THAT(device->loss().text, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(other.Run((*kernels)[1], 10).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(device->Allocate(MemoryUse::kArenas, 64).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(modules.Load(*Images({TestKernel("wrong")})).error().code, ErrorCode::kUnavailable);
}

TEST(CudaDevice, AnErrorOfItsOwnBlamesNobody) {
  const auto device = OpenDouble("fail=2:214");
  DeviceModules modules(*device);
  const auto kernels = *modules.Load(*Images({TestKernel("relu")}));
  Launched run(*device);
  ASSERT_TRUE(run.Run((*kernels)[0], 10).has_value());
  EXPECT_EQ(run.Run((*kernels)[0], 10).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(device->lost());
  EXPECT_FALSE(device->loss().by_kernel);
}

TEST(CudaDevice, ARefusedLaunchIsOnlyThatCall) {
  const auto device = OpenDouble("fail=1:701,3:2");
  DeviceModules modules(*device);
  const auto kernels = *modules.Load(*Images({TestKernel("relu")}));
  Launched run(*device);
  EXPECT_EQ(run.Run((*kernels)[0], 10).error().code, ErrorCode::kInternal);
  EXPECT_TRUE(run.Run((*kernels)[0], 10).has_value());
  EXPECT_EQ(run.Run((*kernels)[0], 10).error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(run.Run((*kernels)[0], 10).has_value());
  EXPECT_TRUE(run.IsRelu());
  EXPECT_FALSE(device->lost());
}

// What does not end: the call comes back at its deadline, the next ones at once, and what it uses stays alive; after a
// bound the device is given up.
TEST(DeviceLane, NobodyWaitsForAKernelThatDoesNotEnd) {
  const auto device = OpenDouble("hang=1", {.run_max_ms = 50});
  DeviceModules modules(*device);
  const auto kernels = *modules.Load(*Images({TestKernel("relu")}));
  Launched run(*device);
  EXPECT_EQ(run.Run((*kernels)[0], 10, SystemClock().NowNs() + 1'000'000).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_FALSE(device->lost());
  EXPECT_EQ(run.held.use_count(), 2) << "the lane holds what still runs";
  EXPECT_EQ(run.Run((*kernels)[0], 10).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(device->lost());
  Launched other(*device);
  EXPECT_EQ(other.Run((*kernels)[0], 10).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(device->lost()) << "a run without a deadline has the device's";
  EXPECT_TRUE(device->loss().by_kernel);
}

}  // namespace
}  // namespace kiln
