#include "common/base/memory_budget.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(MemoryBudget, BooksByUseAndRefusesBeyondItsLimit) {
  MemoryBudget budget(1'000);
  ASSERT_TRUE(budget.Reserve(MemoryUse::kArenas, 600).has_value());
  ASSERT_TRUE(budget.Reserve(MemoryUse::kPlans, 300).has_value());
  EXPECT_EQ(budget.used(), 900);
  EXPECT_EQ(budget.used(MemoryUse::kPlans), 300);
  const Status refused = budget.Reserve(MemoryUse::kPackedWeights, 101);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(refused.error().message.find("arenas 600, plans 300"), std::string::npos) << refused.error().message;
  budget.Release(MemoryUse::kArenas, 600);
  EXPECT_TRUE(budget.Reserve(MemoryUse::kPackedWeights, 700).has_value());
}

TEST(MemoryBudget, IsTightAboveNineTenthsOrOnceItRefused) {
  MemoryBudget budget(1'000);
  ASSERT_TRUE(budget.Reserve(MemoryUse::kArenas, 900).has_value());
  EXPECT_FALSE(budget.IsTight());
  EXPECT_FALSE(budget.Reserve(MemoryUse::kArenas, 200).has_value());
  EXPECT_TRUE(budget.IsTight());
  EXPECT_EQ(budget.TakeRefusals(), 1u);
  EXPECT_FALSE(budget.IsTight());
  EXPECT_FALSE(budget.Reserve(MemoryUse::kArenas, 2'000).has_value()) << "no plan that leaves makes room for that";
  EXPECT_FALSE(budget.IsTight());
  ASSERT_TRUE(budget.Reserve(MemoryUse::kArenas, 50).has_value());
  EXPECT_TRUE(budget.IsTight());
}

TEST(MemoryCharge, EndsOnceAndWithItsLastOwner) {
  MemoryBudget budget(1'000);
  {
    MemoryCharge first = MemoryCharge::Take(&budget, MemoryUse::kPlans, 400).value();
    MemoryCharge second = std::move(first);
    EXPECT_EQ(budget.used(), 400);
    second = MemoryCharge::Take(&budget, MemoryUse::kPlans, 100).value();
    EXPECT_EQ(budget.used(), 100);
    EXPECT_FALSE(MemoryCharge::Take(&budget, MemoryUse::kPlans, 901).has_value());
  }
  EXPECT_EQ(budget.used(), 0);
  EXPECT_TRUE(MemoryCharge::Take(nullptr, MemoryUse::kPlans, INT64_MAX).has_value());
}

TEST(MemoryCharge, IsSplitIntoPartsThatEndOnTheirOwn) {
  MemoryBudget budget(1'000);
  MemoryCharge whole = MemoryCharge::Take(&budget, MemoryUse::kPlans, 400).value();
  MemoryCharge part = whole.Split(150);
  EXPECT_EQ(part.bytes(), 150);
  EXPECT_EQ(whole.bytes(), 250);
  EXPECT_EQ(budget.used(), 400);
  whole = {};
  EXPECT_EQ(budget.used(), 150);
  EXPECT_EQ(part.Split(500).bytes(), 150) << "there is no more, and it ended";
  EXPECT_EQ(budget.used(), 0);
}

TEST(MachineMemory, IsSomethingAndNoMoreThanTheMachineHas) {
  EXPECT_GE(MachineMemoryBytes(), int64_t{64} << 20);
  EXPECT_LT(MachineMemoryBytes(), int64_t{1} << 48);
}

}  // namespace
}  // namespace kiln
