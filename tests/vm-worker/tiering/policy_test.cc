#include "vm-worker/tiering/policy.h"

#include "tests/vm-worker/dispatch/plan_fixture.h"

namespace kiln {
namespace {

using testing::ReluSegment;

SegmentProfile Profile(uint64_t calls, uint64_t ms, std::vector<ShapeCount> shapes = {{{8}, {{1, 1000}, {}, {}}}}) {
  return {calls, ms * 1'000'000, 0, std::move(shapes), 10'000'000'000, 0};
}

// `n` rows, answered `calls` times by a general plan in `us` each.
ShapeCount ByGeneral(int64_t n, uint64_t calls, uint64_t us) {
  return {{n}, {{}, {calls, calls * us * 1000}, {}}, true};
}

SegmentPlans OneGeneric() {
  SegmentPlans plans;
  plans.generic = true;
  plans.published = 1;
  return plans;
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

TEST(NextPlan, AShapeWhoseExactPlanPaysGetsOneOnce) {
  SegmentPlans plans = OneGeneric();
  // In 10 s; an exact plan saves 6 % in 600 s: 3.6 s of the first, 0.18 s of the second, for 0.3 s of compilation.
  const SegmentProfile profile = Profile(100, 1000, {ByGeneral(16, 1000, 1000), ByGeneral(8, 50, 1000)});
  const auto wish = NextPlan({}, ReluSegment(), profile, plans);
  ASSERT_TRUE(wish);
  EXPECT_EQ(wish->tier, PlanTier::kExact);
  EXPECT_EQ(wish->symbols, (std::vector<SymbolGuard>{{16, 16, 1}}));
  EXPECT_EQ(wish->hints, (std::vector<int64_t>{16}));
  EXPECT_NEAR(wish->forecast.calls_per_s, 100, 1e-9);
  EXPECT_NEAR(wish->forecast.call_ns, 1e6, 1e-3);
  EXPECT_NEAR(wish->forecast.saved_ns, 1e9 * 0.06 / 10 * 600, 1);
  EXPECT_EQ(wish->forecast.learnt_from, 0u);
  EXPECT_EQ(wish->priority, static_cast<uint32_t>(wish->forecast.saved_ns / 1000));
  plans.exact = {{16}};
  EXPECT_FALSE(NextPlan({}, ReluSegment(), profile, plans)) << "the other does not pay";
}

TEST(NextPlan, ASavingThatCompilationEatsUpIsNotAskedFor) {
  struct Case {
    const char* what;
    uint64_t calls, us;
    int64_t span_ns, compile_ns;
    bool pays;
  };
  const Case cases[] = {
      {"0.6 s against the default cost", 63 + 200, 650, 10'000'000'000, 0, true},
      {"too few calls to tell", 63, 100'000, 10'000'000'000, 0, false},
      {"0.15 s against the default cost", 64, 650, 10'000'000'000, 0, false},
      {"0.15 s against a measured cost of 0.1 s", 64, 650, 10'000'000'000, 100'000'000, true},
      {"0.6 s against a measured cost of 2 s", 263, 650, 10'000'000'000, 2'000'000'000, false},
      {"as many calls in ten times the time", 263, 650, 100'000'000'000, 0, false},
      {"many calls that take nothing", 100'000, 0, 10'000'000'000, 0, false},
      {"a burst counts as if nothing had come in the 5 s before", 64, 490, 1'000'000, 0, false},
      {"a longer burst", 64, 975, 1'000'000, 0, true},
  };
  for (const Case& c : cases) {
    SegmentProfile profile = Profile(100, 1000, {ByGeneral(16, c.calls, c.us)});
    profile.span_ns = c.span_ns;
    profile.compile_ns = c.compile_ns;
    EXPECT_EQ(NextPlan({}, ReluSegment(), profile, OneGeneric()).has_value(), c.pays) << c.what;
  }
}

// Two shapes with exact plans: what they saved there is what they are expected to save elsewhere.
TEST(NextPlan, TheSavingIsLearntFromExactPlansInUse) {
  SegmentPlans plans = OneGeneric();
  plans.exact = {{16}, {32}};
  const auto with_exact_us = [](uint64_t us) {
    ShapeCount a = ByGeneral(16, 100, 1000), b = ByGeneral(32, 100, 2000);
    a.times.exact = {1000, 1000 * us * 1000};
    b.times.exact = {1000, 1000 * us * 2000};
    return Profile(100, 1000, {a, b, ByGeneral(8, 150, 1000)});
  };
  EXPECT_FALSE(NextPlan({}, ReluSegment(), with_exact_us(1000), plans))
      << "they save nothing: 0.27 s by the default alone";
  EXPECT_FALSE(NextPlan({}, ReluSegment(), with_exact_us(1500), plans)) << "they are slower";
  const auto wish = NextPlan({}, ReluSegment(), with_exact_us(500), plans);
  ASSERT_TRUE(wish);
  EXPECT_EQ(wish->hints, (std::vector<int64_t>{8}));
  EXPECT_EQ(wish->forecast.learnt_from, 2u);
  EXPECT_NEAR(wish->forecast.gain, (0.06 + 0.5 + 0.5) / 3, 1e-9);
}

TEST(NextPlan, AShapeThatNoPlanAdmitsIsWorthMore) {
  const ShapeCount refused{{16}, {{64, 64 * 1'000'000}, {}, {}}};
  const auto wish = NextPlan({}, ReluSegment(), Profile(100, 1000, {ByGeneral(8, 80, 1000), refused}), OneGeneric());
  ASSERT_TRUE(wish);
  EXPECT_EQ(wish->hints, (std::vector<int64_t>{16}));
}

// Counts of before a plan was published, or left, arrive afterwards.
TEST(NextPlan, TheSavingIsOverWhatAnswersNow) {
  const CallTime many = {1000, 1000 * 1'000'000ull}, few = {10, 10 * 1'000'000};
  const ShapeCount just_published{{16}, {many, few, {}}, true}, just_withdrawn{{16}, {few, many, {}}, false};
  EXPECT_FALSE(NextPlan({}, ReluSegment(), Profile(100, 1000, {just_published}), OneGeneric()));
  const auto forecast = [](const ShapeCount& shape) { return ForecastExact({}, Profile(100, 1000, {shape}), shape); };
  EXPECT_NEAR(forecast(just_published).saved_ns, 10e6 * 0.06 / 10 * 600, 1);
  EXPECT_NEAR(forecast(just_withdrawn).saved_ns, 10e6 * 0.87 / 10 * 600, 1);
}

TEST(NextPlan, TheShapeThatSavesMostComesFirst) {
  const auto wish = NextPlan({}, ReluSegment(), Profile(100, 1000, {ByGeneral(8, 5000, 100), ByGeneral(16, 500, 5000)}),
                             OneGeneric());
  ASSERT_TRUE(wish);
  EXPECT_EQ(wish->hints, (std::vector<int64_t>{16}));
}

TEST(NextPlan, NoExactPlanBeforeTheGeneralOneAnswers) {
  SegmentPlans plans = OneGeneric();
  plans.published = 0;
  EXPECT_FALSE(NextPlan({}, ReluSegment(), Profile(100, 1000, {{{16}, {{1000, 1'000'000'000}, {}, {}}}}), plans));
}

TEST(NextPlan, StopsAtTheMostPlansOfASegment) {
  SegmentPlans plans = OneGeneric();
  plans.published = TierPolicy{}.plans_max;
  EXPECT_FALSE(NextPlan({}, ReluSegment(), Profile(1000, 1000, {ByGeneral(16, 1000, 1000)}), plans));
}

TierPolicy Ranges() {
  TierPolicy policy;
  policy.range = true;
  return policy;
}

// Equally many calls of every shape: too few of each for an exact plan.
SegmentProfile Even(const std::vector<int64_t>& sizes, uint64_t calls = 60, uint64_t us = 10'000) {
  std::vector<ShapeCount> shapes;
  for (int64_t n : sizes) shapes.push_back(ByGeneral(n, calls, us));
  return Profile(100, 1000, shapes);
}

TEST(NextPlan, ShapesWithSomethingInCommonGetARangePlanWhereThatIsAskedFor) {
  struct Case {
    const char* what;
    std::vector<int64_t> sizes;
    std::optional<SymbolGuard> wanted;
  };
  const Case cases[] = {
      {"multiples of 8 in bounds", {24, 40, 56, 72}, SymbolGuard{16, 128, 8}},
      {"of 32", {32, 64, 96, 160}, SymbolGuard{32, 256, 32}},
      {"of 128, which gains no more than 64", {128, 256, 384, 512}, SymbolGuard{128, 512, 64}},
      {"bounds alone", {17, 20, 23, 30}, SymbolGuard{16, 32, 1}},
      {"a multiple of 4 says nothing", {20, 24, 28, 36}, SymbolGuard{16, 64, 1}},
      {"three shapes may get exact plans", {16, 32, 48}, std::nullopt},
      {"all that the segment declares", {1, 3, 5, 4095}, std::nullopt},
      {"empty calls are not what it is for", {0, 16, 24, 32}, SymbolGuard{16, 32, 8}},
  };
  for (const Case& c : cases) {
    EXPECT_FALSE(NextPlan({}, ReluSegment(), Even(c.sizes), OneGeneric())) << c.what << ": off by default";
    const auto wish = NextPlan(Ranges(), ReluSegment(), Even(c.sizes), OneGeneric());
    ASSERT_EQ(wish.has_value(), c.wanted.has_value()) << c.what;
    if (!wish) continue;
    EXPECT_EQ(wish->tier, PlanTier::kRange) << c.what;
    EXPECT_EQ(wish->symbols, (std::vector<SymbolGuard>{*c.wanted})) << c.what;
  }
}

TEST(NextPlan, NoRangePlanForWhatOneShapeHasMostOfOrThatDoesNotPay) {
  SegmentProfile dominated = Even({24, 40, 56, 72});
  dominated.shapes[0].times.general = {61, 61 * 10'000'000ull};
  EXPECT_TRUE(NextPlan(Ranges(), ReluSegment(), dominated, OneGeneric()));
  dominated.shapes[0].times.general.calls = 181;
  SegmentPlans plans = OneGeneric();
  plans.exact = {{24}};  // asked for
  EXPECT_FALSE(NextPlan(Ranges(), ReluSegment(), dominated, plans));
  plans.exact_published = {{24}};  // the others are left
  dominated.shapes.push_back(ByGeneral(88, 60, 10'000));
  EXPECT_TRUE(NextPlan(Ranges(), ReluSegment(), dominated, plans));
  // A hundredth of 240 calls in 10 s, over 600 s, against 0.3 s.
  EXPECT_FALSE(NextPlan(Ranges(), ReluSegment(), Even({24, 40, 56, 72}, 60, 2'000), OneGeneric()));
  EXPECT_TRUE(NextPlan(Ranges(), ReluSegment(), Even({24, 40, 56, 72}, 60, 2'200), OneGeneric()));
}

TEST(NextPlan, ARangePlanIsAskedForOnceAndAgainForShapesThatItLeavesOut) {
  SegmentPlans plans = OneGeneric();
  plans.range_pending = true;
  EXPECT_FALSE(NextPlan(Ranges(), ReluSegment(), Even({24, 40, 56, 72}), plans));
  plans.range_pending = false;
  plans.ranges = {{{16, 128, 8}}};
  EXPECT_FALSE(NextPlan(Ranges(), ReluSegment(), Even({24, 40, 56, 72}), plans));
  const auto wish = NextPlan(Ranges(), ReluSegment(), Even({24, 40, 56, 72, 1024, 1040, 1056, 1088, 2000}), plans);
  ASSERT_TRUE(wish);
  EXPECT_EQ(wish->symbols, (std::vector<SymbolGuard>{{1024, 2048, 16}}));
  EXPECT_EQ(wish->hints, (std::vector<int64_t>{1024}));
  plans.ranges.push_back(wish->symbols);
  EXPECT_FALSE(NextPlan(Ranges(), ReluSegment(), Even({200, 300, 400, 500}), plans)) << "two are the most";
}

// Milliseconds of a plan's time in ten seconds: a hundredth of it over ten minutes against 5 s of measuring.
SegmentProfile Spent(uint64_t exact_ms, uint64_t general_ms) {
  SegmentProfile profile = Profile(10, 100, {ByGeneral(8, 100, general_ms * 10), {{16}, {}}});
  profile.shapes[1].times.exact = {100, exact_ms * 1'000'000};
  return profile;
}

TierPolicy Tuned() {
  TierPolicy policy;
  policy.tuned = true;
  return policy;
}

TEST(NextPlan, WhereMuchTimeIsSpentThePlanIsTunedOnce) {
  SegmentPlans plans = OneGeneric();
  plans.exact = plans.exact_published = {{16}, {8}};
  plans.exact_published.pop_back();
  EXPECT_FALSE(NextPlan({}, ReluSegment(), Spent(9'000, 9'000), plans)) << "it is off by default";
  const auto exact = NextPlan(Tuned(), ReluSegment(), Spent(9'500, 9'000), plans);
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->tier, PlanTier::kTuned);
  EXPECT_EQ(exact->symbols, (std::vector<SymbolGuard>{{16, 16, 1}}));
  EXPECT_FALSE(exact->general);
  plans.tuned_pending = true;
  EXPECT_FALSE(NextPlan(Tuned(), ReluSegment(), Spent(9'500, 9'000), plans));
  plans.tuned_pending = false;
  plans.tuned_exact = {{16}};
  const auto general = NextPlan(Tuned(), ReluSegment(), Spent(9'500, 9'000), plans);
  ASSERT_TRUE(general);
  EXPECT_TRUE(general->general);
  EXPECT_EQ(general->symbols, (std::vector<SymbolGuard>{{0, 4096, 1}}));
  EXPECT_EQ(general->hints, (std::vector<int64_t>{8}));
  plans.tuned_general = true;
  EXPECT_FALSE(NextPlan(Tuned(), ReluSegment(), Spent(9'500, 9'000), plans));
}

TEST(NextPlan, WhatMeasuringWouldCostMoreThanItSavesIsNotTuned) {
  SegmentPlans plans = OneGeneric();
  plans.exact = plans.exact_published = {{16}};
  plans.tuned_general = true;
  EXPECT_FALSE(NextPlan(Tuned(), ReluSegment(), Spent(8'200, 0), plans)) << "4.9 s in ten minutes";
  EXPECT_TRUE(NextPlan(Tuned(), ReluSegment(), Spent(8'500, 0), plans));
}

}  // namespace
}  // namespace kiln
