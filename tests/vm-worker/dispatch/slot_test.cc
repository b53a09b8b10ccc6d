#include "vm-worker/dispatch/slot.h"

#include "tests/vm-worker/dispatch/plan_fixture.h"

namespace kiln {
namespace {

using testing::Linked;
using testing::ReluPlan;

// The [min, max] of the plan that a slot's list chooses for n, or {-1, -1}.
std::pair<int64_t, int64_t> Chosen(const PlanList& list, int64_t n) {
  const Tensor x = Tensor::Zeros(DType::kF32, {n, 4});
  const int64_t values[] = {n};
  const auto* plan = list.Select(values, {&x.ref, 1});
  if (plan == nullptr) return {-1, -1};
  const SymbolGuard& guard = (*plan)->plan().guard.symbols[0];
  return {guard.min, guard.max};
}

TEST(PlanList, MostSpecificValidPlanWins) {
  const PlanList list({Linked(ReluPlan(0, 4096)), Linked(ReluPlan(8, 8)), Linked(ReluPlan(1, 64))}, 1);
  EXPECT_EQ(Chosen(list, 8), (std::pair<int64_t, int64_t>{8, 8}));
  EXPECT_EQ(Chosen(list, 9), (std::pair<int64_t, int64_t>{1, 64}));
  EXPECT_EQ(Chosen(list, 0), (std::pair<int64_t, int64_t>{0, 4096}));
}

// At every edge of a range plan's bounds and divisor, between an exact plan and the generic one.
TEST(PlanList, ARangePlanIsTakenWithinItsBoundsAndAtItsMultiples) {
  Plan range = ReluPlan(16, 64);
  range.guard.symbols[0].divisor = 8;
  const PlanList list({Linked(ReluPlan(0, 4096)), Linked(range), Linked(ReluPlan(32, 32))}, 1);
  const std::pair<int64_t, int64_t> generic{0, 4096}, ranged{16, 64}, exact{32, 32};
  const std::pair<int64_t, std::pair<int64_t, int64_t>> calls[] = {
      {0, generic}, {8, generic}, {15, generic}, {16, ranged}, {17, generic}, {23, generic}, {24, ranged},
      {32, exact},  {40, ranged}, {63, generic}, {64, ranged}, {65, generic}, {72, generic}, {4096, generic}};
  for (const auto& [n, wanted] : calls) EXPECT_EQ(Chosen(list, n), wanted) << n;
  const PlanList alone({Linked(range)}, 1);
  for (const int64_t n : {15, 17, 20, 65, 72}) {
    EXPECT_EQ(Chosen(alone, n), (std::pair<int64_t, int64_t>{-1, -1})) << n;
    const Tensor x = Tensor::Zeros(DType::kF32, {n, 4});
    const int64_t values[] = {n};
    const std::optional<GuardFailure> why = CheckGuard(range.guard, range.symbols, values, {&x.ref, 1});
    ASSERT_TRUE(why) << n;
    EXPECT_NE(why->text.find("16..64, multiples of 8"), std::string::npos) << why->text;
  }
}

TEST(PlanList, ACallThatNoGuardAdmitsHasAReason) {
  const PlanList list({Linked(ReluPlan(1, 64))}, 1);
  const Tensor x = Tensor::Zeros(DType::kF32, {65, 4});
  const int64_t values[] = {65};
  EXPECT_EQ(list.Select(values, {&x.ref, 1}), nullptr);
  const Plan plan = ReluPlan(1, 64);
  const std::optional<GuardFailure> why = CheckGuard(plan.guard, plan.symbols, values, {&x.ref, 1});
  ASSERT_TRUE(why);
  EXPECT_NE(why->text.find("65"), std::string::npos) << why->text;
  EXPECT_NE(why->text.find("1..64"), std::string::npos) << why->text;
}

TEST(PlanList, SixtyFourPlansAreFoundByHash) {
  std::vector<std::shared_ptr<const LinkedPlan>> plans;
  for (int64_t n = 1; n < static_cast<int64_t>(limits::kSlotPlansMax); ++n) plans.push_back(Linked(ReluPlan(n, n)));
  plans.push_back(Linked(ReluPlan(100, 200)));
  const PlanList list(plans, 1);
  for (int64_t n = 1; n < static_cast<int64_t>(limits::kSlotPlansMax); ++n)
    EXPECT_EQ(Chosen(list, n), (std::pair{n, n}));
  EXPECT_EQ(Chosen(list, 150), (std::pair<int64_t, int64_t>{100, 200}));
  EXPECT_EQ(Chosen(list, 300), (std::pair<int64_t, int64_t>{-1, -1}));
}

TEST(PlanList, AViewIsNotAdmittedWhereContiguousMemoryIsNeeded) {
  const PlanList list({Linked(ReluPlan(0, 4096))}, 1);
  const Tensor whole = Tensor::Zeros(DType::kF32, {2, 8});
  TensorRef view = whole.ref;
  view.dims = {2, 4};  // the left half of each row
  const int64_t values[] = {2};
  EXPECT_EQ(list.Select(values, {&view, 1}), nullptr);
  const Plan plan = ReluPlan(0, 4096);
  EXPECT_NE(CheckGuard(plan.guard, plan.symbols, values, {&view, 1})->text.find("not contiguous"), std::string::npos);
}

TEST(Slot, PublishingReplacesTheListAndFreesItAfterItsReaders) {
  EpochDomain epochs;
  const int reader = epochs.RegisterReader();
  Slot slot(epochs);
  auto plan = Linked(ReluPlan(0, 4096));
  std::weak_ptr<const LinkedPlan> watch = plan;
  slot.Publish({std::move(plan)});
  epochs.Enter(reader);
  const PlanList* seen = slot.Load();
  ASSERT_NE(seen, nullptr);
  slot.Publish({Linked(ReluPlan(1, 64))});
  epochs.Reclaim();
  EXPECT_FALSE(watch.expired()) << "a call ends on the plan it began with";
  EXPECT_EQ(Chosen(*seen, 100), (std::pair<int64_t, int64_t>{0, 4096}));
  EXPECT_NE(slot.Load()->version(), seen->version());
  epochs.Leave(reader);
  epochs.Reclaim();
  EXPECT_TRUE(watch.expired());
  slot.Publish({});
  EXPECT_EQ(slot.Load(), nullptr);
}

}  // namespace
}  // namespace kiln
