// Plans exist for every segment whose shapes can be expressed: what kernels cannot do or may not be, reference steps
// are.
#include <gtest/gtest.h>

#include <string>

#include "common/base/limits.h"
#include "tests/compile-service/lower/check_program.h"

namespace kiln::testing {
namespace {

TEST(Fallback, SplitWithoutAPartIsAddressArithmetic) {
  const Segment segment = SegmentOf(R"(program "p" { symbol n
      constant sizes : i64[3] = [1, 2, 4]
      func main(%x: f32[n, 7]) -> (%y, %q) {
        %sizes : i64[3] = Constant() {value = @sizes}
        _, %a : f32[*], _ = Split(%x, %sizes) {axis = 1}
        _, _, %b : f32[*] = Split(%x) {axis = 1, num_outputs = 3}
        %y : f32[*] = Relu(%a)
        %q : f32[*] = Relu(%b) } })");
  const lower::LoweredSegment lowered = CheckSegment(segment, {.shapes = {{5}, {0}, {1}}});
  EXPECT_EQ(lowered.coverage.reference_nodes, 0) << Describe(lowered);
}

// A chain whose every link leaves the segment has more stores than a kernel may.
TEST(Fallback, AGroupPastTheLimitsOfKernelsIsComputedNodeByNode) {
  constexpr int kLinks = 70;
  std::string body, outputs;
  for (int i = 1; i <= kLinks; ++i) {
    const std::string before = i == 1 ? "x" : "y" + std::to_string(i - 1), name = "y" + std::to_string(i);
    body += " %" + name + " : f32[n, 6] = Add(%" + before + ", %x)\n";
    outputs += (i == 1 ? "%" : ", %") + name;
  }
  const Segment segment =
      SegmentOf("program \"p\" { symbol n\n func main(%x: f32[n, 6]) -> (" + outputs + ") {\n" + body + "} }");
  const lower::LoweredSegment lowered = CheckSegment(segment, {.shapes = {{5}, {0}}});
  EXPECT_EQ(lowered.coverage.reference_nodes, kLinks);
  EXPECT_EQ(lowered.coverage.fallbacks.size(), 1u);
}

// Products of different widths and reductions of different lengths are all different kernels.
TEST(Fallback, TheCheapestGroupsGiveUpTheirKernelsWhenThereAreTooMany) {
  constexpr int kProducts = static_cast<int>(limits::kPlanKernelsMax) + 20;
  std::string constants, body, outputs;
  for (int i = 1; i <= kProducts; ++i) {
    const std::string n = std::to_string(i), type = "f32[4, " + n + "]";
    constants += " constant w" + n + " : " + type + " = splat 0.5\n";
    body += " %w" + n + " : " + type + " = Constant() {value = @w" + n + "}\n %p" + n + " : f32[*] = MatMul(%x, %w" +
            n + ")\n %s" + n + " : f32[*] = ReduceSum(%p" + n + ", %axis)\n";
    outputs += (i == 1 ? "%s" : ", %s") + n;
  }
  const Segment segment = SegmentOf("program \"p\" { symbol n\n constant a : i64[1] = [1]\n" + constants +
                                    " func main(%x: f32[n, 4]) -> (" + outputs +
                                    ") {\n %axis : i64[1] = Constant() {value = @a}\n" + body + "} }");
  const lower::LoweredSegment lowered = CheckSegment(segment, {.shapes = {{5}, {1}}});
  EXPECT_LE(lowered.specs.size(), limits::kPlanKernelsMax);
  EXPECT_GT(lowered.specs.size(), limits::kPlanKernelsMax / 2);
  EXPECT_GT(lowered.coverage.reference_nodes, 0);
  EXPECT_GT(lowered.coverage.kernel_nodes, lowered.coverage.reference_nodes);
  EXPECT_EQ(lowered.coverage.fallbacks.size(), 1u);
}

// One table is looked up by run-time indices and, transposed, multiplied with: neither use copies it in a call.
TEST(Fallback, LookingUpRowsCopiesNoTable) {
  const Segment segment = SegmentOf(R"(program "p" { symbol n
      constant w : f32[8, 12] = splat 0.5
      func main(%i: i64[n], %x: f32[n, 8]) -> (%y, %q) {
        %w : f32[8, 12] = Constant() {value = @w}
        %t : f32[12, 8] = Transpose(%w) {perm = [1, 0]}
        %g : f32[n, 8] = Gather(%t, %i)
        %y : f32[n, 8] = Add(%g, %x)
        %q : f32[n, 12] = MatMul(%x, %w) } })");
  const lower::LoweredSegment lowered = CheckSegment(segment, {.shapes = {{5}, {0}, {1}}});
  EXPECT_EQ(lowered.plan.steps.size(), 3u) << Describe(lowered);
}

}  // namespace
}  // namespace kiln::testing
