// Attention patterns become one kernel that stores no scores, and give what the interpreter gives.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

struct Pattern {
  const char* name;
  const char* text;
  int64_t symbols;  // of the program
  size_t steps;
};
std::ostream& operator<<(std::ostream& out, const Pattern& p) {
  return out << p.name;
}

const Pattern kPatterns[] = {
    {"ScaledWithAMask",
     R"(program "p" { symbol b symbol m symbol n
      constant f : f32[] = [0.25]
      func main(%q: f32[b, 3, m, 20], %k: f32[b, 3, n, 20], %v: f32[b, 3, n, 12], %mask: f32[b, 1, 1, n]) -> (%y) {
        %f : f32[] = Constant() {value = @f}
        %t : f32[b, 3, 20, n] = Transpose(%k) {perm = [0, 1, 3, 2]}
        %s : f32[b, 3, m, n] = MatMul(%q, %t)
        %c : f32[b, 3, m, n] = Mul(%s, %f)
        %a : f32[b, 3, m, n] = Add(%c, %mask)
        %p : f32[b, 3, m, n] = Softmax(%a) {axis = -1}
        %y : f32[b, 3, m, 12] = MatMul(%p, %v) } })",
     3, 1},
    {"HeadsSideBySide",
     R"(program "p" { symbol b symbol m
      constant s : i64[4] = [0, 0, 2, 16]
      constant o : i64[3] = [0, 0, 32]
      constant w : f32[32, 32] = splat 0.125
      func main(%q: f32[b, m, 32], %k: f32[b, m, 32], %v: f32[b, m, 32], %mask: f32[m, m]) -> (%y) {
        %s : i64[4] = Constant() {value = @s}
        %o : i64[3] = Constant() {value = @o}
        %q4 : f32[b, m, 2, 16] = Reshape(%q, %s)
        %k4 : f32[b, m, 2, 16] = Reshape(%k, %s)
        %v4 : f32[b, m, 2, 16] = Reshape(%v, %s)
        %qt : f32[b, 2, m, 16] = Transpose(%q4) {perm = [0, 2, 1, 3]}
        %kt : f32[b, 2, 16, m] = Transpose(%k4) {perm = [0, 2, 3, 1]}
        %vt : f32[b, 2, m, 16] = Transpose(%v4) {perm = [0, 2, 1, 3]}
        %x : f32[b, 2, m, m] = MatMul(%qt, %kt)
        %a : f32[b, 2, m, m] = Add(%mask, %x)
        %p : f32[b, 2, m, m] = Softmax(%a) {axis = 3}
        %h : f32[b, 2, m, 16] = MatMul(%p, %vt)
        %ht : f32[b, m, 2, 16] = Transpose(%h) {perm = [0, 2, 1, 3]}
        %r : f32[b, m, 32] = Reshape(%ht, %o)
        %w : f32[32, 32] = Constant() {value = @w}
        %y : f32[b, m, 32] = MatMul(%r, %w) } })",
     2, 2},  // no copy between the two
    {"CausalByWhere",
     R"(program "p" { symbol m symbol n
      constant never : f32[] = [-10000.0]
      func main(%q: f32[m, 8], %k: f32[8, n], %v: f32[n, 5], %allowed: bool[m, n]) -> (%y) {
        %never : f32[] = Constant() {value = @never}
        %s : f32[m, n] = MatMul(%q, %k)
        %w : f32[m, n] = Where(%allowed, %s, %never)
        %p : f32[m, n] = Softmax(%w) {axis = -1}
        %y : f32[m, 5] = MatMul(%p, %v) } })",
     2, 1},
    {"OneHeadOfKeysForAllQueries",
     R"(program "p" { symbol m symbol n
      func main(%q: f32[4, m, 8], %k: f32[1, n, 8], %v: f32[n, 8]) -> (%y) {
        %t : f32[1, 8, n] = Transpose(%k) {perm = [0, 2, 1]}
        %s : f32[4, m, n] = MatMul(%q, %t)
        %p : f32[4, m, n] = Softmax(%s) {axis = -1}
        %y : f32[4, m, 8] = MatMul(%p, %v) } })",
     2, 1},
};

class AttentionTest : public ::testing::TestWithParam<Pattern> {};

std::vector<std::vector<int64_t>> Shapes(int64_t symbols) {
  std::vector<std::vector<int64_t>> shapes = {std::vector<int64_t>(static_cast<size_t>(symbols), 3)};
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{2, 1, 70}, {1, 33, 5}, {0, 4, 4}, {2, 0, 3}, {2, 5, 0}, {1, 1, 1}, {2, 17, 130}})
    shapes.emplace_back(sizes.end() - symbols, sizes.end());
  return shapes;
}

TEST_P(AttentionTest, IsOneKernelWithoutScoresInMemory) {
  const Segment segment = SegmentOf(GetParam().text);
  ASSERT_FALSE(segment.body.functions.empty());
  for (NumericMode mode : {NumericMode::kDefault, NumericMode::kStrict}) {
    const lower::LoweredSegment lowered = CheckSegment(segment, {.shapes = Shapes(GetParam().symbols), .mode = mode});
    EXPECT_TRUE(std::ranges::any_of(lowered.plan.steps, [](const PlanStep& step) {
      return step.label.starts_with("attention") && std::holds_alternative<KernelStep>(step.step);
    })) << Describe(lowered);
    EXPECT_EQ(lowered.plan.steps.size(), GetParam().steps) << Describe(lowered);
    EXPECT_EQ(lowered.plan.buffers.size(), GetParam().steps - 1) << Describe(lowered);
  }
}

TEST_P(AttentionTest, CompiledPlansGiveWhatTheInterpreterGives) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  for (Target target : HostTargets()) {
    CompiledRunner compiled(target);
    CheckSegment(SegmentOf(GetParam().text), {.shapes = Shapes(GetParam().symbols),
                                              .targets = {target},
                                              .input_scale = 3.0f,
                                              .runner = [&](Target) { return compiled.runner(); }});
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, AttentionTest, ::testing::ValuesIn(kPatterns),
                         [](const auto& info) { return info.param.name; });

// Scores that something else reads have to be stored.
TEST(AttentionTest, ScoresThatAreReadElsewhereAreNotFusedAway) {
  const Segment segment = SegmentOf(R"(program "p" { symbol m symbol n
      func main(%q: f32[m, 8], %k: f32[8, n], %v: f32[n, 5]) -> (%y, %p) {
        %s : f32[m, n] = MatMul(%q, %k)
        %p : f32[m, n] = Softmax(%s) {axis = -1}
        %y : f32[m, 5] = MatMul(%p, %v) } })");
  ASSERT_FALSE(segment.body.functions.empty());
  const lower::LoweredSegment lowered = CheckSegment(segment, {.shapes = {{3, 4}, {1, 40}, {20, 1}}});
  for (const PlanStep& step : lowered.plan.steps) {
    EXPECT_FALSE(step.label.starts_with("attention"));
    EXPECT_TRUE(std::holds_alternative<KernelStep>(step.step)) << step.label;
  }
}

}  // namespace
}  // namespace kiln::testing
