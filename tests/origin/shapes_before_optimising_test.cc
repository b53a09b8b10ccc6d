#include <gtest/gtest.h>

#include "compile-service/lower/lower_segment.h"
#include "tests/compile-service/lower/check_program.h"

namespace kiln {
namespace {

// An exact plan knows its sizes before anything is fused, laid out or tiled: nothing symbolic is left in it.
TEST(Origin, ShapesBeforeOptimising) {
  const Segment segment = testing::SegmentOf(R"(program "p" { symbol n symbol m
    func main(%x: f32[n, m], %b: f32[m]) -> (%y) {
      %a : f32[n, m] = Add(%x, %b)
      %y : f32[n, m] = Softmax(%a) {axis = -1} } })");
  ASSERT_EQ(segment.symbols.size(), 2u);
  lower::LowerRequest request{segment, HostTargets().front(), NumericMode::kDefault, {7, 19}, {}};
  request.symbols = {{lower::SymbolChoice::Kind::kExact, 7, 7, 1}, {lower::SymbolChoice::Kind::kExact, 19, 19, 1}};
  const auto lowered = lower::LowerSegment(request);
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  for (const PlanStep& step : lowered->plan.steps)
    if (const auto* kernel = std::get_if<KernelStep>(&step.step)) {
      for (Dim dim : kernel->dims) EXPECT_TRUE(dim.is_const());
    }
  for (const PlanBuffer& buffer : lowered->plan.buffers) EXPECT_TRUE(buffer.bytes.is_const());
  for (const PlanValue& value : lowered->plan.values)
    for (Dim dim : value.dims) EXPECT_TRUE(dim.is_const());
}

}  // namespace
}  // namespace kiln
