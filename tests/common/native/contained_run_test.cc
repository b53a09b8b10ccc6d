#include "common/native/contained_run.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <new>

#include "common/native/guarded_memory.h"

namespace kiln {
namespace {

using Kind = ContainedEnd::Kind;

TEST(RunContained, WritesReachSharedMemoryAndNothingElse) {
  const GuardedMemory shared(64, 64, GuardedSharing::kShared);
  std::atomic<int> own{1};
  const ContainedEnd end = RunContained([&] {
    own = 2;
    *static_cast<int*>(shared.data()) = 3;
  });
  EXPECT_EQ(end.kind, Kind::kReturned) << end.detail;
  EXPECT_EQ(own, 1);
  EXPECT_EQ(*static_cast<int*>(shared.data()), 3);
}

TEST(RunContained, ASignalIsAFaultAndIsNamed) {
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    const ContainedEnd end = RunContained([&] { raise(number); });
    EXPECT_EQ(end.kind, Kind::kFaulted);
    EXPECT_EQ(end.detail.rfind("signal " + std::to_string(number) + " (", 0), 0u) << end.detail;
  }
}

TEST(RunContained, ALoopWithoutEndIsAFault) {
  const ContainedEnd end = RunContained(
      [] {
        for (volatile bool forever = true; forever;) {
        }
      },
      {.cpu_s = 1, .wall_s = 300});
  EXPECT_EQ(end.kind, Kind::kFaulted) << end.detail;
}

TEST(RunContained, WhatSaysNothingAboutTheCodeIsNoFault) {
  EXPECT_EQ(RunContained([] { raise(SIGKILL); }).kind, Kind::kNotRun);
  EXPECT_EQ(RunContained([] { throw std::bad_alloc(); }).kind, Kind::kNotRun);
  EXPECT_EQ(RunContained([] { raise(SIGSTOP); }, {.cpu_s = 60, .wall_s = 1}).kind, Kind::kNotRun);
}

}  // namespace
}  // namespace kiln
