#include "vm-worker/tiering/rejected_plans.h"

#include <gtest/gtest.h>

#include "common/base/limits.h"

namespace kiln {
namespace {

Digest Id(uint16_t number) {
  Digest digest;
  digest.bytes[0] = static_cast<uint8_t>(number);
  digest.bytes[1] = static_cast<uint8_t>(number >> 8);
  digest.bytes[2] = 1;
  return digest;
}

const RejectedPlans::Why kWrong{MissReason::kQuarantined, "wrong"};

TEST(RejectedPlans, UnchangedContentsAreLookedAtEverMoreSeldom) {
  RejectedPlans rejected;
  EXPECT_EQ(rejected.Reject(Id(1), Id(10), kWrong, 0), RejectedPlans::kPauseFirstMs);
  EXPECT_EQ(rejected.RetryNs(Id(1), 0), RejectedPlans::kPauseFirstMs * 1'000'000);
  EXPECT_EQ(rejected.RetryNs(Id(1), RejectedPlans::kPauseFirstMs * 1'000'000), 0);
  EXPECT_EQ(rejected.Reject(Id(1), Id(10), kWrong, 0), 2 * RejectedPlans::kPauseFirstMs);
  EXPECT_EQ(rejected.Reject(Id(1), Digest{}, kWrong, 0), 4 * RejectedPlans::kPauseFirstMs) << "unreadable now";
  EXPECT_EQ(rejected.ContentsOf(Id(1)), Id(10));
  for (int i = 0; i < 20; ++i) rejected.Reject(Id(1), Id(10), kWrong, 0);
  EXPECT_EQ(rejected.RetryNs(Id(1), 0), RejectedPlans::kPauseMaxMs * 1'000'000);
  EXPECT_EQ(rejected.Reject(Id(1), Id(11), kWrong, 0), RejectedPlans::kPauseFirstMs) << "other contents";
}

TEST(RejectedPlans, AnotherLookKeepsContentsAndLiftingForgetsThem) {
  RejectedPlans rejected;
  rejected.Reject(Id(1), Id(10), kWrong, 0);
  EXPECT_TRUE(rejected.LookAgain(Id(1)));
  EXPECT_FALSE(rejected.LookAgain(Id(2)));
  EXPECT_EQ(rejected.RetryNs(Id(1), 0), 0);
  EXPECT_EQ(rejected.ContentsOf(Id(1)), Id(10));
  rejected.Lift(Id(1));
  EXPECT_EQ(rejected.ContentsOf(Id(1)), Digest{});
}

TEST(RejectedPlans, SayWhyTheLastOfThoseThatAreLeftWasRejected) {
  RejectedPlans rejected;
  EXPECT_EQ(rejected.Last(), nullptr);
  rejected.Reject(Id(2), Id(10), kWrong, 5);
  rejected.Reject(Id(1), Id(10), {MissReason::kUndecided, "edges"}, 7);
  ASSERT_NE(rejected.Last(), nullptr);
  EXPECT_EQ(rejected.Last()->reason, MissReason::kUndecided);
  EXPECT_EQ(rejected.Last()->detail, "edges");
  rejected.Lift(Id(1));
  EXPECT_EQ(rejected.Last()->reason, MissReason::kQuarantined);
  rejected.Reject(Id(2), Id(10), {MissReason::kUndecided, "edges"}, 8);
  EXPECT_EQ(rejected.Last()->reason, MissReason::kUndecided) << "the latest word on a plan counts";
}

TEST(RejectedPlans, TellWhenTheFirstThatWaitsForRoomIsDue) {
  const RejectedPlans::Why no_room{MissReason::kNoPackRoom, "no room"};
  constexpr int64_t kFirstNs = RejectedPlans::kPauseFirstMs * 1'000'000;
  RejectedPlans rejected;
  rejected.Reject(Id(1), Id(10), kWrong, 0);
  EXPECT_EQ(rejected.PackAgainNs(), 0);
  for (const int64_t number : {2, 3}) {
    rejected.Reject(Id(static_cast<uint16_t>(number)), {}, no_room, number);
    rejected.AwaitPackRoom(Id(static_cast<uint16_t>(number)));
  }
  EXPECT_EQ(rejected.PackAgainNs(), kFirstNs + 2);
  rejected.Reject(Id(2), Id(20), kWrong, 4);
  EXPECT_EQ(rejected.PackAgainNs(), kFirstNs + 3) << "the other one waits for something else";
  rejected.Lift(Id(3));
  EXPECT_EQ(rejected.PackAgainNs(), 0);
}

TEST(RejectedPlans, AreBounded) {
  RejectedPlans rejected;
  for (uint16_t i = 0; i < 1000; ++i) rejected.Reject(Id(i), Id(10), kWrong, i);
  EXPECT_EQ(rejected.size(), limits::kRejectedPlansMax);
}

}  // namespace
}  // namespace kiln
