#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/tiering/policy.h"

namespace kiln {
namespace {

using testing::ReluSegment;

// Ten thousand shapes, each seen a few times: one plan over all of them, and no other wish.
TEST(Origin, CompileExplosion) {
  SegmentProfile profile{50'000, 1'000'000'000, 0, {}};
  for (int64_t n = 1; n <= 4096; ++n) profile.shapes.push_back({{n}, 12});
  SegmentPlans plans;
  const auto first = NextPlan({}, ReluSegment(), profile, plans);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->tier, PlanTier::kGeneric);
  plans.generic = true;
  plans.published = 1;
  EXPECT_FALSE(NextPlan({}, ReluSegment(), profile, plans));
}

TEST(Origin, ManyThreadsOneCompile) {
  const SegmentProfile profile{1000, 1'000'000'000, 0, {{{8}, 1000}}};
  SegmentPlans plans;
  ASSERT_TRUE(NextPlan({}, ReluSegment(), profile, plans));
  plans.request_pending = true;  // whatever the number of threads that go on counting
  EXPECT_FALSE(NextPlan({}, ReluSegment(), profile, plans));
}

}  // namespace
}  // namespace kiln
