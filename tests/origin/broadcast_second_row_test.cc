#include <gtest/gtest.h>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln {
namespace {

// Every row is compared, at widths around the vector and at row counts around the unrolling.
TEST(Origin, BroadcastSecondRow) {
  testing::CompiledRunner compiled(HostTargets().front());
  for (const int width : {1, 15, 16, 17, 63, 64, 65}) {
    const std::string columns = std::to_string(width);
    const std::string text = "program \"p\" { symbol n\n func main(%x: f32[n, " + columns + "], %b: f32[" + columns +
                             "]) -> (%y) {\n %y : f32[n, " + columns + "] = Add(%x, %b) } }";
    testing::CheckSegment(testing::SegmentOf(text), {.shapes = {{32}, {1}, {2}, {3}, {5}, {33}, {0}},
                                                     .targets = {HostTargets().front()},
                                                     .runner = [&](Target) { return compiled.runner(); }});
  }
}

}  // namespace
}  // namespace kiln
