#include "common/native/guarded_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/native/contained_run.h"

namespace kiln {
namespace {

using Kind = ContainedEnd::Kind;

TEST(GuardedMemory, AWriteBehindItsEndEndsTheProcess) {
  const GuardedMemory memory(128);
  auto* bytes = static_cast<volatile char*>(memory.data());
  EXPECT_EQ(RunContained([&] { bytes[127] = 1; }).kind, Kind::kReturned);
  EXPECT_EQ(RunContained([&] { bytes[128] = 1; }).kind, Kind::kFaulted);
}

TEST(GuardedMemory, OnceReadOnlyItIsReadOnly) {
  GuardedMemory memory(128);
  auto* bytes = static_cast<volatile char*>(memory.data());
  ASSERT_TRUE(memory.MakeReadOnly());
  EXPECT_EQ(RunContained([&] { bytes[0] = 1; }).kind, Kind::kFaulted);
  EXPECT_EQ(bytes[0], 0);
}

TEST(GuardedMemory, MoreThanThereIsGivesNull) {
  EXPECT_EQ(GuardedMemory(size_t{1} << 47).data(), nullptr);
}

}  // namespace
}  // namespace kiln
