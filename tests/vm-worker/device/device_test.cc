// A device as the double of its driver shows it: states, memory, errors.
#include <gmock/gmock.h>

#include <thread>

#include "tests/support/cuda_driver/double_device.h"
#include "vm-worker/device/device_lane.h"
#include "vm-worker/device/device_weights.h"

namespace kiln {
namespace {

using testing::DoubleCount;
using ::testing::HasSubstr;
using testing::OpenDouble;

struct Closed {
  const char* settings;
  const char* library;
  int ordinal;
  DeviceState state;
  const char* says;
};

TEST(CudaDevice, WhatIsMissingIsSaid) {
  const Closed cases[] = {
      {"", "libkiln-has-no-such-driver.so", 0, DeviceState::kNoDriver, "no CUDA driver"},
      {"", "libm.so.6", 0, DeviceState::kNoDriver, "is no CUDA driver"},
      {"stub", testing::kCudaDouble, 0, DeviceState::kStubLibrary, "stub"},
      {"devices=0", testing::kCudaDouble, 0, DeviceState::kNoDevice, "no device"},
      {"init=100", testing::kCudaDouble, 0, DeviceState::kNoDevice, "no device"},
      {"init=999", testing::kCudaDouble, 0, DeviceState::kBroken, "999"},
      {"driver=11080", testing::kCudaDouble, 0, DeviceState::kOldDriver, "CUDA 11.8; kernels need one of CUDA 12.0"},
      {"devices=2", testing::kCudaDouble, 2, DeviceState::kBadOrdinal, "no device cuda:2; the driver sees 2"},
      {"capability=7.5", testing::kCudaDouble, 0, DeviceState::kNoTarget, "compute capability 7.5"},
  };
  for (const Closed& one : cases) {
    testing::SetCudaDouble(one.settings);
    CudaDevice::Options options;
    options.library = one.library;
    options.ordinal = one.ordinal;
    DeviceState state{};
    const auto device = CudaDevice::Open(options, state);
    ASSERT_FALSE(device.has_value()) << one.settings;
    EXPECT_EQ(state, one.state) << one.settings << ": " << device.error().message;
    EXPECT_EQ(device.error().code, ErrorCode::kTargetMismatch) << one.settings;
    EXPECT_THAT(device.error().message, HasSubstr(one.says)) << one.settings;
  }
}

TEST(CudaDevice, SaysWhatItIs) {
  const auto device = OpenDouble("capability=8.6;memory=1000000;driver=12040");
  EXPECT_EQ(device->facts().targets, std::vector{Target::kSm80});
  EXPECT_EQ(device->facts().free_bytes, 1'000'000);
  EXPECT_EQ(device->budget().limit(), 800'000);
  EXPECT_EQ(device->Text(), "cuda:0, Kiln's double, compute capability 8.6 (sm_80), driver CUDA 12.4");
}

TEST(CudaDevice, MemoryIsWithinTheBudgetAndComesBack) {
  const auto device = OpenDouble("", {.memory_bytes = 1000});
  {
    auto block = device->Allocate(MemoryUse::kArenas, 600);
    ASSERT_TRUE(block.has_value());
    EXPECT_EQ(block->address() % 256, 0u);
    const auto more = device->Allocate(MemoryUse::kArenas, 600, WithoutRoom::kGoWithout);
    ASSERT_FALSE(more.has_value());
    EXPECT_EQ(more.error().code, ErrorCode::kResourceExhausted);
    EXPECT_THAT(more.error().message, HasSubstr("--device-memory"));
    EXPECT_EQ(DoubleCount("live_allocations"), 1u);
  }
  EXPECT_EQ(DoubleCount("live_allocations"), 0u);
  EXPECT_EQ(device->budget().used(), 0);
  EXPECT_FALSE(device->lost());
}

TEST(CudaDevice, ADeviceWithoutMemoryRefusesAndGoesOn) {
  const auto device = OpenDouble("memory=4096", {.memory_bytes = 1 << 20});
  const auto block = device->Allocate(MemoryUse::kWeights, 8192);
  ASSERT_FALSE(block.has_value());
  EXPECT_EQ(block.error().code, ErrorCode::kResourceExhausted);
  EXPECT_FALSE(device->lost());
  EXPECT_EQ(device->budget().used(), 0);
  EXPECT_TRUE(device->Allocate(MemoryUse::kWeights, 4096).has_value());
}

TEST(CudaDevice, BytesComeBackAsTheyWent) {
  const auto device = OpenDouble();
  auto lane = *DeviceLane::Open(*device);
  ASSERT_TRUE(lane->Reserve(1000).has_value());
  std::vector<uint8_t> there(1000), back(1000, 0);
  for (size_t i = 0; i < there.size(); ++i) there[i] = static_cast<uint8_t>(i * 7);
  ASSERT_TRUE(lane->Begin({}, false).has_value());
  ASSERT_TRUE(lane->Upload(lane->arena(), there.data(), 1000).has_value());
  ASSERT_TRUE(lane->Download(back.data(), lane->arena(), 1000).has_value());
  ASSERT_TRUE(lane->Wait(0).has_value());
  lane->End(false, nullptr);
  EXPECT_EQ(back, there);
  // Beyond the arena there is nothing: the driver refuses, and nothing is lost.
  const Status beyond = lane->Upload(lane->arena() + static_cast<cuda::Pointer>(lane->arena_bytes()), there.data(), 1);
  ASSERT_FALSE(beyond.has_value());
  EXPECT_EQ(beyond.error().code, ErrorCode::kInternal);
  EXPECT_FALSE(device->lost());
}

TEST(DeviceDeathTest, TheHostCannotTouchItsMemory) {
  const auto device = OpenDouble();
  const auto block = *device->Allocate(MemoryUse::kArenas, 256);
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(block.address()) = 1, "");
}

TEST(DeviceLane, AnArenaGrowsAndAllocatesNothingOnceItHasGrown) {
  const auto device = OpenDouble();
  auto lane = *DeviceLane::Open(*device);
  ASSERT_TRUE(lane->Reserve(100).has_value());
  ASSERT_TRUE(lane->Reserve(5 << 20).has_value());
  const uint64_t allocations = device->counters().allocations;
  for (int64_t bytes : {int64_t{1}, int64_t{5} << 20, int64_t{300}}) ASSERT_TRUE(lane->Reserve(bytes).has_value());
  EXPECT_EQ(device->counters().allocations, allocations);
  EXPECT_EQ(DoubleCount("live_allocations"), 1u);
}

TEST(DeviceWeights, AreThereOnceForAllWhoHoldThem) {
  const auto device = OpenDouble();
  DeviceWeights weights(*device);
  const std::vector<float> data(100, 3.0f);
  const auto owner = std::make_shared<int>(), other = std::make_shared<int>();
  int made = 0;
  const auto get = [&](const std::shared_ptr<int>& of) {
    return weights.Get(HashBytes(std::vector<uint8_t>{1}), of, MemoryUse::kWeights,
                       [&]() -> Result<DeviceWeights::Contents> {
                         ++made;
                         return DeviceWeights::Contents{data.data(), 400, nullptr};
                       });
  };
  {
    const auto first = get(owner), second = get(owner);
    ASSERT_TRUE(first.has_value() && second.has_value());
    EXPECT_EQ((*first)->address(), (*second)->address());
    EXPECT_EQ(made, 1);
    EXPECT_NE((*get(other))->address(), (*first)->address()) << "keys of one owner mean nothing to another";
  }
  EXPECT_EQ(DoubleCount("live_allocations"), 0u);
  ASSERT_TRUE(get(owner).has_value());
  EXPECT_EQ(made, 3);
}

// Several threads: each enters the context for itself.
TEST(CudaDevice, ThreadsHaveLanesOfTheirOwn) {
  const auto device = OpenDouble();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto lane = DeviceLane::Open(*device);
      if (!lane.has_value() || !(*lane)->Reserve(64).has_value() || !(*lane)->Begin({}, false).has_value()) return;
      int in = t, out = -1;
      if (!(*lane)->Upload((*lane)->arena(), &in, 4).has_value()) return;
      if (!(*lane)->Download(&out, (*lane)->arena(), 4).has_value() || !(*lane)->Wait(0).has_value()) return;
      (*lane)->End(false, nullptr);
      right += out == t ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
  EXPECT_EQ(DoubleCount("streams"), 1u);  // the device's own
}

}  // namespace
}  // namespace kiln
