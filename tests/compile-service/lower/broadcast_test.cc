// Element-wise ops whose operands broadcast against each other: each has dims that the other lacks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

struct Pair {
  const char *left, *right, *result;
};
constexpr Pair kPairs[] = {
    {"1, n", "m, 1", "m, n"},
    {"m, 1", "1, n", "m, n"},
    {"n", "m, 1", "m, n"},
    {"m, 1", "n", "m, n"},
    {"3, 1, n", "1, m, 1", "3, m, n"},
    {"m, 1, 5", "n, 1", "m, n, 5"},
    {"m, 1, 1, n", "1, 4, 1", "m, 4, 1, n"},
    {"1, 9", "17, 1", "17, 9"},
};
const char* const kOps[] = {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max"};

// The larger value so that no divisor is near 0 and no power leaves f32; what follows reads the result.
std::string TwoInputs(const char* op, const Pair& pair) {
  return fmt::format(
      R"(program "p" {{ symbol n symbol m
      constant two : f32[1] = splat 2
      func main(%x: f32[{0}], %d: f32[{1}]) -> (%y) {{
        %two : f32[1] = Constant() {{value = @two}}
        %a : f32[{0}] = Add(%x, %two)
        %b : f32[{1}] = Add(%d, %two)
        %q : f32[{2}] = {3}(%a, %b)
        %y : f32[{2}] = Tanh(%q) }} }})",
      pair.left, pair.right, pair.result, op);
}

TEST(Broadcasting, OfOperandsAgainstEachOther) {
  for (const char* op : kOps)
    for (const Pair& pair : kPairs) {
      const std::string text = TwoInputs(op, pair);
      SCOPED_TRACE(text);
      const Segment segment = SegmentOf(text);
      std::vector<std::vector<int64_t>> shapes;
      for (const int64_t n : {7, 1, 0, 40}) shapes.push_back(std::vector<int64_t>(segment.symbols.size(), n));
      if (segment.symbols.size() == 2) shapes.insert(shapes.end(), {{17, 9}, {1, 5}, {5, 1}, {3, 0}});
      const lower::LoweredSegment plan = CheckSegment(segment, {.shapes = shapes, .runner = CompiledRunners()});
      EXPECT_EQ(plan.coverage.reference_nodes, 0u);
    }
}

TEST(Broadcasting, OfAWeightAndAnInputAgainstEachOther) {
  for (const char* op : kOps)
    for (const bool weight_first : {false, true}) {
      const std::string text = fmt::format(
          R"(program "p" {{ symbol n
      constant w : f32[19, 1] = splat 1.5
      func main(%x: f32[1, n]) -> (%y) {{
        %w : f32[19, 1] = Constant() {{value = @w}}
        %e : f32[1, n] = Exp(%x)
        %q : f32[19, n] = {}({})
        %y : f32[19, n] = Tanh(%q) }} }})",
          op, weight_first ? "%w, %e" : "%e, %w");
      SCOPED_TRACE(text);
      CheckSegment(SegmentOf(text), {.shapes = {{7}, {1}, {0}, {40}}, .runner = CompiledRunners()});
    }
}

}  // namespace
}  // namespace kiln::testing
