#include "common/artifact/kernel_blob.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "common/artifact/target_text.h"

namespace kiln {
namespace {

TEST(KernelBlob, ParsesWhatItBuilt) {
  const std::vector<uint8_t> code = {1, 2, 3, 4, 5};
  const auto blob = BuildKernelBlob(Target::kX86V3, 2, code);
  auto view = ParseKernelBlob(blob);
  ASSERT_TRUE(view.has_value()) << ToString(view.error());
  EXPECT_EQ(view->target, Target::kX86V3);
  EXPECT_EQ(view->entry_offset, 66u);
  EXPECT_EQ(view->bytes[66], 3);
}

TEST(KernelBlob, EveryChangedHeaderByteIsRefused) {
  const std::vector<uint8_t> code(100, 0x90);
  const auto blob = BuildKernelBlob(Target::kX86V2, 0, code);
  for (size_t i = 0; i < kKernelHeaderBytes; ++i) {
    auto changed = blob;
    changed[i] ^= 0x80;
    EXPECT_FALSE(ParseKernelBlob(changed).has_value()) << "byte " << i;
  }
}

TEST(KernelBlob, TruncatedOrLongerBlobsAreRefused) {
  const auto blob = BuildKernelBlob(Target::kX86V2, 0, std::vector<uint8_t>(10, 0x90));
  for (size_t size = 0; size < blob.size(); ++size)
    EXPECT_FALSE(ParseKernelBlob(std::span(blob).first(size)).has_value()) << size;
  auto longer = blob;
  longer.push_back(0);
  EXPECT_FALSE(ParseKernelBlob(longer).has_value());
}

const DeviceLaunch kLaunch{256, 8, 49152, 3, 5, 13000};

TEST(DeviceBlob, ParsesWhatItBuilt) {
  const std::vector<uint8_t> image = {1, 2, 3};
  const auto blob = BuildDeviceBlob(Target::kSm90, kLaunch, image);
  const auto view = ParseKernelBlob(blob);
  ASSERT_TRUE(view.has_value()) << ToString(view.error());
  EXPECT_EQ(view->target, Target::kSm90);
  ASSERT_TRUE(view->launch.has_value());
  EXPECT_EQ(*view->launch, kLaunch);
  EXPECT_EQ(view->bytes.subspan(view->entry_offset).size(), 3u);
  EXPECT_EQ(view->bytes[view->entry_offset], 1);
  const auto code = BuildKernelBlob(Target::kX86V3, 0, image);
  EXPECT_FALSE(ParseKernelBlob(code)->launch.has_value());
}

TEST(DeviceBlob, LaunchesThatNoDeviceTakesAreRefused) {
  const auto refused = [](auto change) {
    DeviceLaunch launch = kLaunch;
    change(launch);
    const auto blob = BuildDeviceBlob(Target::kSm80, launch, std::vector<uint8_t>(40, 1));
    return !ParseKernelBlob(blob).has_value();
  };
  EXPECT_FALSE(refused([](DeviceLaunch&) {}));
  for (const uint32_t threads : {0u, 1u, 31u, 33u, 1025u, 1056u, ~0u})
    EXPECT_TRUE(refused([&](DeviceLaunch& launch) { launch.threads = threads; })) << threads;
  for (const uint32_t threads : {32u, 96u, 1024u})
    EXPECT_FALSE(refused([&](DeviceLaunch& launch) { launch.threads = threads; })) << threads;
  EXPECT_TRUE(refused([](DeviceLaunch& launch) { launch.items_per_block = 0; }));
  EXPECT_TRUE(refused([](DeviceLaunch& launch) { launch.shared_bytes = kDeviceSharedBytesMax + 1; }));
  EXPECT_FALSE(refused([](DeviceLaunch& launch) { launch.shared_bytes = kDeviceSharedBytesMax; }));
  EXPECT_TRUE(refused([](DeviceLaunch& launch) { launch.pointers = 257; }));
  EXPECT_TRUE(refused([](DeviceLaunch& launch) { launch.pointers = ~0u; }));
  EXPECT_TRUE(refused([](DeviceLaunch& launch) { launch.dims = ~0u; }));
  // 510 pointers and dims, and the range, are 4096 bytes.
  EXPECT_FALSE(refused([](DeviceLaunch& launch) { launch.pointers = 10, launch.dims = 500; }));
  EXPECT_TRUE(refused([](DeviceLaunch& launch) { launch.pointers = 10, launch.dims = 501; }));
  EXPECT_TRUE(refused([](DeviceLaunch& launch) { launch.driver_version = 0; }));
}

TEST(DeviceBlob, HostileHeadersAreRefused) {
  const auto blob = BuildDeviceBlob(Target::kSm100, kLaunch, std::vector<uint8_t>(40, 1));
  for (size_t size = 0; size < blob.size(); ++size)
    EXPECT_FALSE(ParseKernelBlob(std::span(blob).first(size)).has_value()) << size;
  for (size_t i = 0; i < kKernelHeaderBytes; ++i) {
    auto changed = blob;
    changed[i] ^= 0x80;
    const auto view = ParseKernelBlob(changed);
    // Another launch within the limits is as good as this one: what names a kernel is the hash of its bytes.
    const bool is_launch = i >= 24 && i < 48;
    EXPECT_TRUE(!view.has_value() || is_launch) << "byte " << i;
  }
  // What one kind of target says in its header, the other does not.
  auto moved = blob;
  moved[16] = 65;
  EXPECT_FALSE(ParseKernelBlob(moved).has_value()) << "an image elsewhere";
  auto processor = blob;
  processor[12] = static_cast<uint8_t>(Target::kX86V3);
  EXPECT_FALSE(ParseKernelBlob(processor).has_value()) << "a launch for a processor";
  auto device = BuildKernelBlob(Target::kX86V3, 0, std::vector<uint8_t>(40, 1));
  device[12] = static_cast<uint8_t>(Target::kSm90);
  EXPECT_FALSE(ParseKernelBlob(device).has_value()) << "a device's kernel without a launch";
}

TEST(Target, NamesAndNumbersRoundTrip) {
#define KILN_TARGET(value, name, text, architecture, rung, vector_bytes, cpu, features, doc) \
  EXPECT_EQ(TargetFromName(text), Target::k##name);                                          \
  EXPECT_EQ(TargetFromNumber(value), Target::k##name);                                       \
  EXPECT_EQ(InfoOf(Target::k##name).f32_lanes(), (vector_bytes) / 4);
#include "common/artifact/targets.def"
#undef KILN_TARGET
  EXPECT_EQ(TargetFromName("pdp-11"), std::nullopt);
  EXPECT_EQ(TargetFromNumber(0), std::nullopt);
}

TEST(Target, AHostRunsItsOwnRungAndLowerOnes) {
  EXPECT_TRUE(CanRun(Target::kX86V4, Target::kX86V2));
  EXPECT_FALSE(CanRun(Target::kX86V2, Target::kX86V4));
  EXPECT_FALSE(CanRun(Target::kAArch64, Target::kX86V2));
  const std::vector<Target> host = HostTargets();
  for (size_t i = 1; i < host.size(); ++i) EXPECT_TRUE(CanRun(host[i - 1], host[i]));
}

TEST(Target, DevicesRunTheirOwnMajorUpToTheirMinor) {
  const auto targets = [](int major, int minor) { return DeviceTargets(major, minor); };
  EXPECT_EQ(targets(8, 0), std::vector{Target::kSm80});
  EXPECT_EQ(targets(8, 9), std::vector{Target::kSm80});
  EXPECT_EQ(targets(9, 0), std::vector{Target::kSm90});
  EXPECT_EQ(targets(10, 3), std::vector{Target::kSm100});
  EXPECT_EQ(targets(12, 1), std::vector{Target::kSm120});
  for (const auto& [major, minor] : {std::pair{7, 5}, {11, 0}, {13, 0}, {0, 0}, {-1, 90}, {80, 0}})
    EXPECT_TRUE(targets(major, minor).empty()) << major << "." << minor;
}

// A host of both kinds: neither runs the other's code, and no device another major's.
TEST(Target, ProcessorsAndDevicesDoNotMix) {
#define KILN_TARGET(value, name, text, architecture, rung, vector_bytes, cpu, features, doc) Target::k##name,
  const Target all[] = {
#include "common/artifact/targets.def"
  };
#undef KILN_TARGET
  for (Target host : all)
    for (Target code : all) {
      const TargetInfo &a = InfoOf(host), &b = InfoOf(code);
      if (a.is_device() || b.is_device()) {
        EXPECT_EQ(CanRun(host, code), a.is_device() && b.is_device() && a.rung / 10 == b.rung / 10 && a.rung >= b.rung)
            << a.name << " " << b.name;
      }
    }
  for (Target host : HostTargets()) EXPECT_FALSE(InfoOf(host).is_device());
  EXPECT_FALSE(CanRun(Target::kSm100, Target::kSm90));
  EXPECT_FALSE(CanRun(Target::kSm90, Target::kX86V2));
  EXPECT_TRUE(CanRun(Target::kSm90, Target::kSm90));
}

TEST(Target, EnvironmentLowersTheBestRung) {
  const std::vector<Target> all = HostTargets();
  if (all.size() < 2) GTEST_SKIP() << "the host runs one rung only";
  ASSERT_EQ(setenv("KILN_MAX_TARGET", std::string(InfoOf(all[1]).name).c_str(), 1), 0);
  EXPECT_EQ(HostTargets().front(), all[1]);
  EXPECT_TRUE(CheckTargetLimit().has_value());
  ASSERT_EQ(setenv("KILN_MAX_TARGET", "x86-64-v9", 1), 0);
  const Status unknown = CheckTargetLimit();
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(unknown.error().message.find("x86-64-v9"), std::string::npos);
  ASSERT_EQ(setenv("KILN_MAX_TARGET", "sm_90", 1), 0);
  EXPECT_FALSE(CheckTargetLimit().has_value()) << "a device is no processor";
  EXPECT_EQ(HostTargets(), all);
  ASSERT_EQ(unsetenv("KILN_MAX_TARGET"), 0);
  EXPECT_EQ(HostTargets(), all);
}

}  // namespace
}  // namespace kiln
