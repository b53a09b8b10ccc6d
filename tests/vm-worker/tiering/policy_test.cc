#include "vm-worker/tiering/policy.h"

#include "tests/vm-worker/dispatch/plan_fixture.h"

namespace kiln {
namespace {

using testing::ReluSegment;

SegmentProfile Profile(uint64_t calls, uint64_t ms, std::vector<ShapeCount> shapes = {{{8}, 1}}) {
  return {calls, ms * 1'000'000, 0, std::move(shapes)};
}

TEST(NextPlan, AsksForNothingBeforeRunsAndTimeAreBothReached) {
  const TierPolicy policy;
  EXPECT_FALSE(NextPlan(policy, ReluSegment(), Profile(3, 1000), {}));
  EXPECT_FALSE(NextPlan(policy, ReluSegment(), Profile(4, 1000), {}));
  EXPECT_FALSE(NextPlan(policy, ReluSegment(), Profile(1000, 19), {}));
  EXPECT_TRUE(NextPlan(policy, ReluSegment(), Profile(5, 20), {}));
}

TEST(NextPlan, TheFirstPlanIsGenericOverDeclaredSymbols) {
  const auto wish = NextPlan({}, ReluSegment(), Profile(5, 20), {});
  ASSERT_TRUE(wish);
  EXPECT_EQ(wish->tier, PlanTier::kGeneric);
  EXPECT_EQ(wish->symbols, (std::vector<SymbolGuard>{{0, 4096, 1}}));
  EXPECT_EQ(wish->hints, (std::vector<int64_t>{8}));
}

TEST(NextPlan, OneRequestAtATime) {
  SegmentPlans plans;
  plans.request_pending = true;
  EXPECT_FALSE(NextPlan({}, ReluSegment(), Profile(100, 1000), plans));
}

TEST(NextPlan, AFrequentShapeGetsAnExactPlanOnce) {
  SegmentPlans plans;
  plans.generic = true;
  plans.published = 1;
  const SegmentProfile profile = Profile(100, 1000, {{{16}, 80}, {{8}, 20}});
  const auto wish = NextPlan({}, ReluSegment(), profile, plans);
  ASSERT_TRUE(wish);
  EXPECT_EQ(wish->tier, PlanTier::kExact);
  EXPECT_EQ(wish->symbols, (std::vector<SymbolGuard>{{16, 16, 1}}));
  plans.exact = {{16}};
  EXPECT_FALSE(NextPlan({}, ReluSegment(), profile, plans)) << "20 of 100 calls are too few";
}

TEST(NextPlan, StopsAtTheMostPlansOfASegment) {
  SegmentPlans plans;
  plans.generic = true;
  plans.published = TierPolicy{}.plans_max;
  EXPECT_FALSE(NextPlan({}, ReluSegment(), Profile(1000, 1000, {{{16}, 1000}}), plans));
}

}  // namespace
}  // namespace kiln
