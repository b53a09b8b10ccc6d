#include "tests/vm-worker/dispatch/plan_fixture.h"

namespace kiln {
namespace {

TEST(Origin, UnalignedTile) {
  alignas(64) float memory[64] = {};
  Plan plan = testing::ReluPlan(0, 64);
  plan.guard.inputs[0].alignment = AlignmentClass::k64;
  const int64_t symbols[] = {2};
  const TensorRef aligned = MakeRef(DType::kF32, {2, 4}, memory), shifted = MakeRef(DType::kF32, {2, 4}, memory + 1);
  EXPECT_FALSE(CheckGuard(plan.guard, plan.symbols, symbols, {&aligned, 1}));
  const auto failure = CheckGuard(plan.guard, plan.symbols, symbols, {&shifted, 1});
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->text.find("64"), std::string::npos) << failure->text;
  plan.guard.inputs[0].alignment = AlignmentClass::kElement;
  EXPECT_FALSE(CheckGuard(plan.guard, plan.symbols, symbols, {&shifted, 1}))
      << "a plan that does not rely on it takes any address";
}

}  // namespace
}  // namespace kiln
