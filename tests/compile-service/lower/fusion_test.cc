// What lowering makes of known patterns: how many steps, what the guard says, what a range plan admits.
#include <gtest/gtest.h>

#include <set>

#include "common/bytecode/program_text.h"
#include "tests/compile-service/lower/check_program.h"

namespace kiln::testing {
namespace {

struct Pattern {
  const char* name;
  const char* text;
  std::vector<int64_t> shape;
  size_t steps, steps_in_strict_mode;
};
std::ostream& operator<<(std::ostream& out, const Pattern& p) {
  return out << p.name;
}

class FusionTest : public ::testing::TestWithParam<Pattern> {};

TEST_P(FusionTest, StepsAreAsFewAsTheyShouldBe) {
  const Pattern& pattern = GetParam();
  const Segment segment = SegmentOf(pattern.text);
  ASSERT_FALSE(segment.body.functions.empty());
  const lower::LoweredSegment fused = CheckSegment(segment, {.shapes = {pattern.shape}});
  EXPECT_EQ(fused.plan.steps.size(), pattern.steps) << Describe(fused);
  const lower::LoweredSegment strict = CheckSegment(segment, {.shapes = {pattern.shape}, .mode = NumericMode::kStrict});
  EXPECT_EQ(strict.plan.steps.size(), pattern.steps_in_strict_mode) << Describe(strict);
}

const Pattern kPatterns[] = {
    {"SoftmaxIsOneStep",
     R"(program "p" { symbol n
      func main(%x: f32[n, 30]) -> (%y) { %y : f32[n, 30] = Softmax(%x) {axis = -1} } })",
     {4},
     1,
     1},
    {"LayerNormWithActivationIsOneStep",
     R"(program "p" { symbol n
      constant g : f32[20] = splat 0.5
      func main(%x: f32[n, 20], %r: f32[n, 20]) -> (%y) {
        %g : f32[20] = Constant() {value = @g}
        %a : f32[n, 20] = Add(%x, %r)
        %l : f32[n, 20] = LayerNormalization(%a, %g, %g) {axis = -1}
        %y : f32[n, 20] = Gelu(%l) } })",
     {4},
     1,
     1},
    {"BatchNormDisappears",
     R"(program "p" { symbol n symbol w
      constant k : f32[20, 6, 3] = splat 0.5
      constant v : f32[20] = splat 1.5
      func main(%x: f32[n, 6, w]) -> (%y) {
        %k : f32[20, 6, 3] = Constant() {value = @k}
        %v : f32[20] = Constant() {value = @v}
        %c : f32[*] = Conv(%x, %k) {kernel_shape = [3]}
        %b : f32[*] = BatchNormalization(%c, %v, %v, %v, %v)
        %y : f32[*] = Relu(%b) } })",
     {2, 9},
     3,
     3},  // input to channels-last, convolution, output to row-major
    {"SlidingWindowsAreViews",
     R"(program "p" { symbol n
      constant i : i64[3, 4] = [1, 2, 3, 4, 3, 4, 5, 6, 5, 6, 7, 8]
      func main(%x: f32[n, 12, 5]) -> (%y) {
        %i : i64[3, 4] = Constant() {value = @i}
        %g : f32[*] = Gather(%x, %i) {axis = 1}
        %y : f32[*] = Relu(%g) } })",
     {4},
     1,
     1},
    {"OtherIndicesAreOneLookup",
     R"(program "p" { symbol n
      constant i : i64[2, 2] = [1, 3, 5, 8]
      func main(%x: f32[n, 12]) -> (%y) {
        %i : i64[2, 2] = Constant() {value = @i}
        %g : f32[*] = Gather(%x, %i) {axis = 1}
        %y : f32[*] = Relu(%g) } })",
     {4},
     1,
     1},
    {"AScalarOfAFillOfOneElement",
     R"(program "p" { symbol n
      constant s : i64[0] = []
      constant v : f32[1] = [3]
      func main(%x: f32[n, 20]) -> (%y, %c) {
        %s : i64[0] = Constant() {value = @s}
        %c : f32[] = ConstantOfShape(%s) {value = @v}
        %y : f32[n, 20] = Add(%x, %c) } })",
     {4},
     2,
     2},
    {"EqualNodesOnce",
     R"(program "p" { symbol n
      func main(%x: f32[n, 20]) -> (%y) {
        %a : f32[n, 20] = Exp(%x)
        %b : f32[n, 20] = Exp(%x)
        %d : f32[n, 20] = Tanh(%x)
        %y : f32[n, 20] = Sub(%a, %b) } })",
     {4},
     1,
     1},
    {"TwoChainsThatMeetAreOne",
     R"(program "p" { symbol n
      func main(%x: f32[n, 20], %z: f32[n, 20]) -> (%y) {
        %a : f32[n, 20] = Exp(%x)
        %b : f32[n, 20] = Tanh(%z)
        %c : f32[n, 20] = Neg(%b)
        %y : f32[n, 20] = Sub(%a, %c) } })",
     {4},
     1,
     1},
    {"ActivationBehindAReshapeJoinsTheProduct",
     R"(program "p" { symbol n
      constant w : f32[12, 8] = splat 0.5
      constant h : f32[] = [0.5]
      constant s : i64[3] = [-1, 3, 8]
      constant f : i64[2] = [-1, 12]
      func main(%x: f32[n, 3, 12]) -> (%y) {
        %w : f32[12, 8] = Constant() {value = @w}
        %h : f32[] = Constant() {value = @h}
        %s : i64[3] = Constant() {value = @s}
        %f : i64[2] = Constant() {value = @f}
        %q : f32[*] = Reshape(%x, %f)
        %m : f32[*] = MatMul(%q, %w)
        %r : f32[*] = Reshape(%m, %s)
        %a : f32[*] = Mul(%r, %h)
        %t : f32[*] = Tanh(%r)
        %y : f32[*] = Mul(%a, %t) } })",
     {4},
     1,
     1},
    {"ViewsCostNothing",
     R"(program "p" { symbol n
      constant w : f32[12, 8] = splat 0.5
      constant s : i64[2] = [-1, 12]
      func main(%x: f32[n, 3, 4]) -> (%y) {
        %w : f32[12, 8] = Constant() {value = @w}
        %s : i64[2] = Constant() {value = @s}
        %r : f32[n, 12] = Reshape(%x, %s)
        %m : f32[n, 8] = MatMul(%r, %w)
        %y : f32[n, 8] = Neg(%m) } })",
     {4},
     1,
     1},
};

INSTANTIATE_TEST_SUITE_P(Patterns, FusionTest, ::testing::ValuesIn(kPatterns),
                         [](const auto& info) { return std::string(info.param.name); });

const char kRow[] = R"(program "p" { symbol n symbol m
  func main(%x: f32[n, m], %z: f32[n, m]) -> (%y) { %y : f32[n, m] = Add(%x, %z) } })";

TEST(Guards, RangePlanHoldsWhatTheRequestChose) {
  const Segment segment = SegmentOf(kRow);
  using Kind = lower::SymbolChoice::Kind;
  const lower::LowerRequest request{
      segment, Target::kX86V4, NumericMode::kDefault, {32, 5}, {{Kind::kRange, 16, 64, 8}, {}}};
  const Result<lower::LoweredSegment> lowered = lower::LowerSegment(request);
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  const Guard& guard = lowered->plan.guard;
  EXPECT_EQ(guard.symbols[0], (SymbolGuard{16, 64, 8}));
  for (auto [n, admitted] : {std::pair<int64_t, bool>{16, true}, {64, true}, {72, false}, {20, false}, {8, false}}) {
    EXPECT_EQ(GuardAdmits(guard, lowered->plan.symbols, std::vector<int64_t>{n, 3}), admitted) << n;
  }
}

TEST(Guards, ShapesThatTheInterpreterRefusesAreNotAdmitted) {
  const Segment segment = SegmentOf(R"(program "p" { symbol n
    constant k : f32[20, 6, 3] = splat 0.5
    func main(%x: f32[2, 6, n]) -> (%y) {
      %k : f32[20, 6, 3] = Constant() {value = @k}
      %y : f32[*] = Conv(%x, %k) {kernel_shape = [3]} } })");
  const Result<lower::LoweredSegment> lowered =
      lower::LowerSegment({segment, Target::kX86V4, NumericMode::kDefault, {8}, {}});
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  EXPECT_TRUE(GuardAdmits(lowered->plan.guard, lowered->plan.symbols, std::vector<int64_t>{3}));
  EXPECT_FALSE(GuardAdmits(lowered->plan.guard, lowered->plan.symbols, std::vector<int64_t>{2}));
}

TEST(Requests, HintsMustFitTheSegment) {
  const Segment segment = SegmentOf(kRow);
  const Result<lower::LoweredSegment> lowered =
      lower::LowerSegment({segment, Target::kX86V4, NumericMode::kDefault, {8}, {}});
  ASSERT_FALSE(lowered.has_value());
  EXPECT_EQ(lowered.error().code, ErrorCode::kInvalidArgument);
}

TEST(PackedWeights, AreTheSameForAnyNumberOfRows) {
  const Segment segment = SegmentOf(R"(program "p" { symbol n
      constant w : f32[96, 100] = splat 0.5
      func main(%x: f32[n, 96]) -> (%y) {
        %w : f32[96, 100] = Constant() {value = @w}
        %y : f32[n, 100] = MatMul(%x, %w) } })");
  std::set<std::string> recipes;
  for (const int64_t rows : {1, 2, 3, 7, 8, 40, 1000}) {
    for (const bool exact : {false, true}) {
      lower::LowerRequest request{segment, Target::kX86V4, NumericMode::kDefault, std::vector<int64_t>{rows}, {}};
      if (exact) request.symbols.push_back({lower::SymbolChoice::Kind::kExact, rows, rows, 1});
      const Result<lower::LoweredSegment> lowered = lower::LowerSegment(request);
      ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
      for (const PrepackRecipe& recipe : lowered->plan.recipes) recipes.insert(PrintProgram(recipe.program));
    }
  }
  EXPECT_EQ(recipes.size(), 1u);
}

}  // namespace
}  // namespace kiln::testing
