#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/dispatch/slot.h"

namespace kiln {
namespace {

TEST(Origin, EvictedCodeOnTheStack) {
  EpochDomain epochs;
  Slot slot(epochs);
  auto plan = testing::Linked(testing::ReluPlan(0, 64));
  const std::weak_ptr<const LinkedPlan> watched = plan;
  slot.Publish({std::move(plan)});
  const int reader = epochs.RegisterReader();
  {
    EpochScope call(epochs, reader);
    const PlanList* seen = slot.Load();
    ASSERT_NE(seen, nullptr);
    slot.Publish({});  // evicted while the call may still return into its code
    epochs.Reclaim();
    EXPECT_FALSE(watched.expired());
    EXPECT_EQ(seen->plans().size(), 1u);
  }
  epochs.Reclaim();
  EXPECT_TRUE(watched.expired()) << "unmapped once no frame can return to it";
  epochs.UnregisterReader(reader);
}

}  // namespace
}  // namespace kiln
