#include "tests/cache-store/records/fixture.h"

namespace kiln::store {
namespace {

constexpr size_t kKernelBytes = 10'000;

class SpaceTest : public RecordsTest {
 protected:
  void SetUp() override {
    options_.bytes_max = 100'000;
    RecordsTest::SetUp();
  }
  uint64_t Bytes() {
    const cache::StatsReply reply = Do(cache::StatsRequest{}).value();
    for (const cache::Stat& stat : reply.stats)
      if (stat.name == "bytes") return stat.value;
    return 0;
  }
};

TEST_F(SpaceTest, FillingThreeTimesOverKeepsTheLimitAndWholePlans) {
  for (uint8_t number = 1; number <= 30; ++number) {
    ASSERT_TRUE(Publish(number, {number}, kKernelBytes)) << int{number};
    EXPECT_LE(Bytes(), options_.bytes_max);
  }
  EXPECT_GT(records_->Count(Counter::plans_evicted), 10u);
  EXPECT_EQ(Entries(Space::kPlans), VariantKeys().size());
  EXPECT_EQ(Entries(Space::kBlobs), VariantKeys().size());
  ExpectWhole();
}

TEST_F(SpaceTest, UsedAndPinnedPlansStay) {
  for (uint8_t number = 1; number <= 6; ++number) ASSERT_TRUE(Publish(number, {number}, kKernelBytes));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(HasPlan(2));
  ASSERT_TRUE(Do(cache::PinRequest{D(4), true}));
  Open();  // marks survive
  for (uint8_t number = 10; number <= 20; ++number) ASSERT_TRUE(Publish(number, {number}, kKernelBytes));
  EXPECT_TRUE(HasPlan(2));
  EXPECT_TRUE(HasPlan(4));
  EXPECT_FALSE(HasPlan(1));
}

TEST_F(SpaceTest, SharedKernelsLeaveWithTheirLastPlan) {
  ASSERT_TRUE(Publish(1, {50}, kKernelBytes));
  ASSERT_TRUE(Publish(2, {50}, kKernelBytes));
  ASSERT_TRUE(Do(cache::PurgeRequest{cache::PurgeKind::kPlan, D(1)}));
  EXPECT_TRUE(HasKernel(50, kKernelBytes));
  ASSERT_TRUE(Do(cache::PurgeRequest{cache::PurgeKind::kPlan, D(2)}));
  EXPECT_FALSE(HasKernel(50, kKernelBytes));
  EXPECT_EQ(Bytes(), 0u);
}

TEST_F(SpaceTest, HardLimitRefusesWhatPinsLeaveNoRoomFor) {
  for (uint8_t number = 1; number <= 8; ++number) {
    ASSERT_TRUE(Publish(number, {number}, kKernelBytes));
    ASSERT_TRUE(Do(cache::PinRequest{D(number), true}));
  }
  const auto reply = Do(cache::PublishBlobsRequest{{Kernel(100, 50'000)}});
  EXPECT_EQ(reply.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(VariantKeys().size(), 8u);
  ASSERT_TRUE(Do(cache::PinRequest{D(1), false}));
  EXPECT_TRUE(Publish(100, {100}, kKernelBytes));
  EXPECT_EQ(Do(cache::PinRequest{D(99), true}).error().code, ErrorCode::kNotFound);
}

TEST_F(SpaceTest, KernelsOfOneRequestDoNotPushEachOtherOut) {
  cache::PublishBlobsRequest request;
  for (uint8_t fill = 1; fill <= 11; ++fill) request.blobs.push_back(Kernel(fill, kKernelBytes));
  EXPECT_EQ(Do(request).error().code, ErrorCode::kResourceExhausted);
  request.blobs.resize(10);
  ASSERT_TRUE(Do(request));
  for (uint8_t fill = 1; fill <= 10; ++fill) EXPECT_TRUE(HasKernel(fill, kKernelBytes)) << int{fill};
}

TEST_F(SpaceTest, EvictionForAPlanNeverTakesTheKernelsItNeeds) {
  for (uint8_t number = 1; number <= 8; ++number) ASSERT_TRUE(Publish(number, {number}, kKernelBytes));
  // Plan 20 reuses every kernel of the plans that will be evicted for its record.
  PlanRecord record = Plan(20, {1, 2, 3, 4, 5, 6, 7, 8}, kKernelBytes);
  record.plan = kiln::Bytes(15'000, 1);
  const auto reply = PublishRecord(record);
  ASSERT_TRUE(reply) << ToString(reply.error());
  ExpectWhole();
  EXPECT_TRUE(HasPlan(20));
}

}  // namespace
}  // namespace kiln::store
