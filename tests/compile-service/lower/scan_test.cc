// Cumulative sums and products: every axis, direction and dtype, bit for bit.
#include <gtest/gtest.h>

#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

std::string Program(const std::string& inputs, const std::string& nodes, int axis) {
  return "program \"p\" { symbol n\n symbol m\n constant a : i64[] = [" + std::to_string(axis) + "]\n func main(" +
         inputs + ") -> (%y) {\n %a : i64[] = Constant() {value = @a}\n" + nodes + " } }";
}

TEST(Scan, EveryAxisAndDirection) {
  for (int axis : {0, 1, 2, -1}) {
    for (const char* attributes : {"", "exclusive = 1", "reverse = 1", "exclusive = 1, reverse = 1"}) {
      const lower::LoweredSegment lowered = CheckBits(
          Program("%x: f32[n, 5, m]", std::string("%y : f32[n, 5, m] = CumSum(%x, %a) {") + attributes + "}", axis),
          {{3, 4}, {1, 1}, {37, 1}, {2, 70}, {0, 3}, {3, 0}});
      EXPECT_EQ(lowered.plan.steps.size(), 1u) << Describe(lowered);
    }
  }
}

TEST(Scan, EveryDType) {
  for (const char* dtype : {"f16", "bf16", "f64", "i64", "i32", "i16", "i8", "u8", "u16", "u32", "u64"}) {
    const std::string type = dtype;
    for (const char* op : {"CumSum", "CumProd"}) {
      CheckBits(Program("%x: " + type + "[n, m]", "%y : " + type + "[n, m] = " + op + "(%x, %a)", 1),
                {{3, 40}, {33, 9}});
      CheckBits(Program("%x: " + type + "[n, m]", "%y : " + type + "[n, m] = " + op + "(%x, %a) {reverse = 1}", 0),
                {{9, 5}, {4, 19}});
    }
  }
}

// One long row; and rows enough for vectors across them.
TEST(Scan, RowsOfEveryNumber) {
  CheckBits(Program("%x: f32[n]", "%y : f32[n] = CumSum(%x, %a)", 0), {{1000}, {1}, {0}, {17}});
  CheckBits(Program("%x: f32[n, m]", "%y : f32[n, m] = CumProd(%x, %a) {exclusive = 1}", 1),
            {{65, 12}, {1, 100}, {16, 1}, {7, 33}});
}

// What is transposed keeps its memory order; a part of a concatenation is stored where it belongs.
TEST(Scan, BetweenOtherNodes) {
  const lower::LoweredSegment lowered = CheckBits(Program("%x: f32[n, m], %z: f32[2, m]",
                                                          R"(%t : f32[n, m] = Neg(%x)
        %c : f32[n, m] = CumSum(%t, %a) {reverse = 1}
        %y : f32[*] = Concat(%c, %z) {axis = 0})",
                                                          0),
                                                  {{4, 5}, {33, 6}, {1, 1}});
  EXPECT_EQ(lowered.plan.steps.size(), 3u) << Describe(lowered);
  CheckBits(Program("%x: f32[n, m]",
                    R"(%s : f32[n, m] = Neg(%x)
        %t : f32[m, n] = Transpose(%s) {perm = [1, 0]}
        %c : f32[m, n] = CumSum(%t, %a) {exclusive = 1}
        %y : f32[m, n] = Abs(%c))",
                    0),
            {{4, 5}, {33, 6}, {1, 1}});
}

}  // namespace
}  // namespace kiln::testing
