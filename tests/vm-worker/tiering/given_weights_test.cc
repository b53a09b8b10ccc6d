// A worker whose memory has no room for packed weights takes plans that read them as the model holds them.
#include "tests/vm-worker/tiering/fake_fleet.h"

namespace kiln {
namespace {

using testing::SteppedWorker;

constexpr int64_t kColumns = 4096;
constexpr int64_t kPackedBytes = int64_t{64} * kColumns * 4;

// y = x + w, with w : f32[4096].
Program SumProgram() {
  return ParseProgram(R"(program "p" {
      symbol n in [0, 4096]
      constant w : f32[4096] = splat 0.5
      func main(%x: f32[n, 4096]) -> (%y) {
        %w : f32[4096] = Constant() {value = @w}
        %y : f32[n, 4096] = Add(%x, %w)
      }
    })")
      .value();
}

const Segment& SumSegment() {
  static const Segment segment = [] {
    const Program program = SumProgram();
    return CanonicalSegment(program, FindSegments(program).at(0)).value();
  }();
  return segment;
}

// Packed, the weight is there 64 times: 1 MiB.
Plan SumPlan(int64_t min, int64_t max, WeightForm weights) {
  const Segment& segment = SumSegment();
  Plan plan;
  plan.segment = segment.id;
  plan.target = InfoOf(HostTargets().front()).name;
  plan.abi = KILN_KERNEL_ABI;
  plan.numeric_mode = NumericMode::kDefault;
  plan.symbols = segment.body.symbols;
  plan.guard.symbols = {{min, max, 1}};
  plan.guard.inputs = {{true, AlignmentClass::kElement}};
  plan.weights = weights;
  const Dim n = plan.symbols.SymbolDim(0), row = Dim::Const(kColumns), zero = Dim::Const(0), one = Dim::Const(1);
  const bool packed = weights == WeightForm::kPacked;
  if (packed)
    plan.recipes = {{ParseProgram(R"(program "prepack" {
        constant s : i64[2] = [64, 4096]
        func main(%w: f32[4096]) -> (%p) {
          %s : i64[2] = Constant() {value = @s}
          %p : f32[64, 4096] = Expand(%w, %s)
        }
      })")
                         .value(),
                     {0}}};
  plan.values = {{StorageKind::kInput, 0, DType::kF32, zero, {n, row}, {row, one}},
                 {packed ? StorageKind::kPrepacked : StorageKind::kWeight, 0, DType::kF32, zero, {row}, {one}},
                 {StorageKind::kOutput, 0, DType::kF32, zero, {n, row}, {row, one}}};
  plan.outputs = {2};
  plan.steps = {{ReferenceStep{TensorOp::kAdd, {}, {0, 1}, {2}}, {0}, "add"}};
  return plan;
}

struct SumWorker : SteppedWorker {
  explicit SumWorker(MemoryBudget& budget) : SteppedWorker(TierOptions{.budget = &budget}, SumProgram()) {
    columns = kColumns;
    answer = [](float x) { return x + 0.5f; };
    fleet.make_plan = SumPlan;
  }
  // Forms of the plans that calls may run.
  std::vector<WeightForm> Answering() const {
    std::vector<WeightForm> forms;
    for (const auto& plan : model->runtime(0).slot.plans()) forms.push_back(plan->plan().weights);
    return forms;
  }
  ptrdiff_t Asked(WeightForm form) const { return std::ranges::count(fleet.compile_weights, form); }
  uint64_t Booked(MissReason reason) const { return tiers.Stats().misses.calls[static_cast<size_t>(reason)]; }
};

using Forms = std::vector<WeightForm>;
const Forms kPackedAlone = {WeightForm::kPacked}, kAsGivenAlone = {WeightForm::kAsGiven};

TEST(GivenWeights, OfAPlanWhosePackedOnesHaveNoRoomAnswer) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  MemoryBudget budget(kPackedBytes - 100'000);
  SumWorker worker(budget);
  worker.Live(4'000);
  EXPECT_EQ(worker.fleet.compile_weights, (Forms{WeightForm::kPacked, WeightForm::kAsGiven}));
  EXPECT_EQ(worker.Answering(), kAsGivenAlone);
  EXPECT_NE(worker.Status().no_pack_room.find("1048576 bytes of packed_weights pass the worker's memory"),
            std::string::npos)
      << worker.Status().no_pack_room;
  const uint64_t interpreted = worker.Interpreted();
  worker.Live(120'000, 200);
  EXPECT_EQ(worker.Interpreted(), interpreted);
  EXPECT_EQ(worker.Asked(WeightForm::kPacked), 1) << "it is looked at again, not asked for";
  EXPECT_EQ(std::ranges::count(worker.fleet.compile_tiers, PlanTier::kGeneric), 2);
  EXPECT_EQ(worker.tiers.Stats().evicted, 0u);
  EXPECT_EQ(worker.wrong_answers, 0u);
  EXPECT_EQ(budget.used(MemoryUse::kPackedWeights), 0);
  EXPECT_LE(budget.used(), budget.limit());
}

TEST(GivenWeights, UntilTheyAnswerCallsAreBookedAsWithoutRoomForPackedOnes) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  MemoryBudget budget(kPackedBytes - 100'000);
  SumWorker worker(budget);
  worker.fleet.after_fetch = [&] { worker.fleet.hung = true; };
  worker.Live(4'000);
  EXPECT_EQ(worker.Status().reason, MissReason::kNoPackRoom);
  EXPECT_GT(worker.Booked(MissReason::kNoPackRoom), 50u);
  EXPECT_EQ(worker.Booked(MissReason::kNoService), 0u);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(GivenWeights, GiveWayToPackedOnesWhenThereIsRoomAndAnswerAtOnceWhenThatIsGone) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  MemoryBudget budget(4 * kPackedBytes);
  SumWorker worker(budget);
  const int64_t others = budget.limit() * 8 / 10;
  {
    const auto taken = MemoryCharge::Take(&budget, MemoryUse::kModels, others);
    ASSERT_TRUE(taken.has_value());
    worker.Live(4'000);
    ASSERT_EQ(worker.Answering(), kAsGivenAlone);
    worker.Live(30'000, 200);
    EXPECT_EQ(worker.tiers.Stats().evicted, 0u) << "what is tried again costs nobody a plan";
  }
  const uint64_t interpreted = worker.Interpreted();
  worker.Live(60'000, 200);
  EXPECT_EQ(worker.Answering(), kPackedAlone);
  EXPECT_EQ(worker.Status().no_pack_room, "");
  EXPECT_EQ(worker.Status().published.size(), 2u) << "the other one stays at hand";
  EXPECT_EQ(budget.used(MemoryUse::kPackedWeights), kPackedBytes);

  EXPECT_FALSE(MemoryCharge::Take(&budget, MemoryUse::kModels, others).has_value());
  worker.Live(200);
  EXPECT_EQ(worker.tiers.Stats().evicted, 1u);
  EXPECT_EQ(worker.Answering(), kAsGivenAlone);
  EXPECT_NE(worker.Status().no_pack_room, "");
  EXPECT_EQ(worker.Interpreted(), interpreted) << "no call is without a plan";
  EXPECT_EQ(worker.Asked(WeightForm::kAsGiven), 1);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(GivenWeights, OfAPlanInTheStoreAreTakenWithoutCompiling) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  for (const bool room : {true, false}) {
    MemoryBudget budget(room ? 8 * kPackedBytes : kPackedBytes - 100'000);
    SumWorker worker(budget);
    worker.fleet.can_compile = false;
    worker.fleet.Publish(SumPlan(0, 4096, WeightForm::kPacked), 3);
    worker.fleet.Publish(SumPlan(0, 4096, WeightForm::kAsGiven), 3);
    worker.Live(2'000);
    EXPECT_EQ(worker.Answering(), room ? kPackedAlone : kAsGivenAlone);
    EXPECT_EQ(worker.Status().published.size(), 1u) << "where there is room the other one is not fetched";
    EXPECT_EQ(worker.wrong_answers, 0u);
  }
}

TEST(GivenWeights, ExactPlansAreAskedForInTheFormThatHasRoom) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  MemoryBudget budget(kPackedBytes - 100'000);
  SumWorker worker(budget);
  worker.Live(4'000);
  worker.call_clock.reading_ns = 2'000'000;
  worker.Live(60'000, 100);
  EXPECT_EQ(worker.Answering(), (Forms{WeightForm::kAsGiven, WeightForm::kAsGiven}));
  EXPECT_EQ(worker.wrong_answers, 0u);
}

// A store and a compile service of the version before list every plan alike, and pack whatever is asked for.
TEST(GivenWeights, OfServicesThatKnowNoFormsAreNotAskedForInALoopNorTakenByMistake) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  MemoryBudget small(kPackedBytes - 100'000);
  SumWorker worker(small);
  worker.fleet.knows_forms = false;
  worker.Live(60'000, 200);
  EXPECT_TRUE(worker.Answering().empty());
  EXPECT_LE(worker.fleet.compiles_asked, 10);
  EXPECT_EQ(worker.wrong_answers, 0u);

  MemoryBudget large(8 * kPackedBytes);
  SumWorker other(large);
  other.fleet.knows_forms = false;
  other.fleet.Publish(SumPlan(0, 4096, WeightForm::kAsGiven), 3);
  other.Live(10'000);
  EXPECT_EQ(other.Answering(), kPackedAlone);
  EXPECT_EQ(other.wrong_answers, 0u);
}

// Nothing is wrong with a plan in the form that is not wanted now.
TEST(GivenWeights, OfAnOlderStoreAreTakenAtOnceWhenPackedOnesLoseTheirRoom) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  MemoryBudget budget(8 * kPackedBytes);
  SumWorker worker(budget);
  worker.fleet.knows_forms = worker.fleet.can_compile = false;
  const PlanKey given = worker.fleet.Publish(SumPlan(0, 4096, WeightForm::kAsGiven), 3);
  const PlanKey packed = worker.fleet.Publish(SumPlan(0, 4096, WeightForm::kPacked), 3);
  worker.Live(1'000);
  EXPECT_EQ(worker.Status().published, std::vector{packed});
  EXPECT_EQ(worker.Status().trouble, MissReason::kCold);
  EXPECT_EQ(worker.Status().detail, "");
  EXPECT_GE(worker.fleet.fetches_asked, 2) << "it was looked at";

  EXPECT_FALSE(MemoryCharge::Take(&budget, MemoryUse::kModels, budget.limit() - kPackedBytes / 2).has_value());
  worker.Live(300);
  EXPECT_EQ(worker.tiers.Stats().evicted, 1u);
  EXPECT_EQ(worker.Status().published, std::vector{given});
  EXPECT_EQ(worker.wrong_answers, 0u);
}

TEST(GivenWeights, PackedOnesAreTriedAgainWhenIsShownWhateverElseWaits) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  MemoryBudget budget(4 * kPackedBytes);
  SumWorker worker(budget);
  int64_t shown_ms = 0;
  {
    const auto taken = MemoryCharge::Take(&budget, MemoryUse::kModels, budget.limit() * 8 / 10);
    ASSERT_TRUE(taken.has_value());
    worker.Live(3'000);  // the log has told of the plans by then
    ASSERT_EQ(worker.Answering(), kAsGivenAlone);
    shown_ms = worker.Status().pack_again_in_ms;
    ASSERT_GT(shown_ms, 1'000);
    // A plan that nobody believes has a pause of its own.
    const PlanKey other = worker.fleet.Publish(SumPlan(1, 8, WeightForm::kAsGiven), 3);
    worker.fleet.plans[other].signer.bytes[0] = 1;
    worker.fleet.revoked = worker.fleet.plans[other].signer;
    worker.tiers.OnNewHead();
    worker.Live(500);
    ASSERT_NE(worker.Status().trouble, MissReason::kCold);
    EXPECT_EQ(worker.Status().pack_again_in_ms, shown_ms - 500);
  }
  worker.Live(shown_ms - 500 - 100);
  EXPECT_EQ(worker.Answering(), kAsGivenAlone);
  worker.Live(1'000);
  EXPECT_EQ(worker.Answering(), kPackedAlone);
  EXPECT_EQ(worker.wrong_answers, 0u);
}

}  // namespace
}  // namespace kiln
