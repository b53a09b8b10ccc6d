#include "tests/cache-store/records/fixture.h"

namespace kiln::store {
namespace {

using cache::ClaimKind;
using cache::ClaimState;

TEST_F(RecordsTest, OneHolderPerKeyUntilItExpiresOrIsGivenBack) {
  const auto claim = [&](const std::string& holder) {
    return Do(cache::ClaimRequest{ClaimKind::kKernel, {D(1)}, 1000, holder})->entries[0];
  };
  EXPECT_EQ(claim("a").state, ClaimState::kGranted);
  EXPECT_EQ(claim("a").state, ClaimState::kGranted);  // extends
  const auto held = claim("b");
  EXPECT_EQ(held.state, ClaimState::kHeld);
  EXPECT_EQ(held.holder, "a");
  EXPECT_GT(held.remaining_ms, 900u);
  ASSERT_TRUE(Do(cache::ReleaseRequest{ClaimKind::kKernel, {D(1)}, "b"}));  // not b's to give back
  EXPECT_EQ(claim("b").state, ClaimState::kHeld);
  ASSERT_TRUE(Do(cache::ReleaseRequest{ClaimKind::kKernel, {D(1)}, "a"}));
  EXPECT_EQ(claim("b").state, ClaimState::kGranted);
  clock_.AdvanceMs(1001);
  EXPECT_EQ(claim("c").state, ClaimState::kGranted);
  EXPECT_EQ(records_->Count(Counter::claims_taken_over), 1u);
}

TEST_F(RecordsTest, KernelAndPlanKeysAreClaimedApart) {
  EXPECT_EQ(Do(cache::ClaimRequest{ClaimKind::kKernel, {D(1)}, 1000, "a"})->entries[0].state, ClaimState::kGranted);
  EXPECT_EQ(Do(cache::ClaimRequest{ClaimKind::kPlan, {D(1)}, 1000, "b"})->entries[0].state, ClaimState::kGranted);
}

TEST_F(RecordsTest, WhatIsStoredIsPresentAndPublishingEndsTheLease) {
  ASSERT_TRUE(Do(cache::ClaimRequest{ClaimKind::kPlan, {D(1)}, 1000, "a"}));
  ASSERT_TRUE(Do(cache::ClaimRequest{ClaimKind::kKernel, {D(110)}, 1000, "a"}));
  ASSERT_TRUE(Publish(1, {10}));
  EXPECT_EQ(Do(cache::ClaimRequest{ClaimKind::kPlan, {D(1)}, 1000, "b"})->entries[0].state, ClaimState::kPresent);
  const auto kernel = Do(cache::ClaimRequest{ClaimKind::kKernel, {D(110), D(111)}, 1000, "b"})->entries;
  EXPECT_EQ(kernel[0].state, ClaimState::kPresent);
  EXPECT_EQ(kernel[0].kernel_id, KernelIdOf(Kernel(10)));
  EXPECT_EQ(kernel[1].state, ClaimState::kGranted);
  EXPECT_EQ(Entries(Space::kLeases), 1u);
}

TEST_F(RecordsTest, LeasesOutliveARestartAndNotTheirExpiry) {
  ASSERT_TRUE(Do(cache::ClaimRequest{ClaimKind::kPlan, {D(1)}, 1000, "a"}));
  Open();
  EXPECT_EQ(Do(cache::ClaimRequest{ClaimKind::kPlan, {D(1)}, 1000, "b"})->entries[0].state, ClaimState::kHeld);
  clock_.AdvanceMs(2000);
  records_->Tick();
  EXPECT_EQ(Entries(Space::kLeases), 0u);
  EXPECT_EQ(Do(cache::ClaimRequest{ClaimKind::kPlan, {D(1)}, 1000, "b"})->entries[0].state, ClaimState::kGranted);
}

TEST_F(RecordsTest, ClaimWithoutAHolderIsRefused) {
  EXPECT_EQ(Do(cache::ClaimRequest{ClaimKind::kPlan, {D(1)}, 1000, ""}).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kiln::store
