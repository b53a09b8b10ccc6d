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
  ASSERT_EQ(unsetenv("KILN_MAX_TARGET"), 0);
  EXPECT_EQ(HostTargets(), all);
}

}  // namespace
}  // namespace kiln
