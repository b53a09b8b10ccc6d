#include "common/segment/decisions.h"

#include <gtest/gtest.h>

#include "common/bytecode/program_text.h"

namespace kiln {
namespace {

std::vector<bool> Of(const char* nodes, const char* outputs) {
  const std::string text = std::string("program \"p\" {\n  symbol n in [1, 64]\n  func main(%x: f32[n, 4]) -> (") +
                           outputs + ") {\n" + nodes + "  }\n}";
  auto program = ParseProgram(text);
  EXPECT_TRUE(program.has_value()) << ToString(program.error());
  return OutputsBehindDecisions(CanonicalSegment(*program, FindSegments(*program).at(0)).value());
}

TEST(OutputsBehindDecisions, ArithmeticThenArgMaxMayJump) {
  EXPECT_EQ(Of("    %e : f32[n, 4] = Exp(%x)\n    %i : i64[n, 1] = ArgMax(%e) {axis = 1}\n", "%e, %i"),
            (std::vector<bool>{false, true}));
}

TEST(OutputsBehindDecisions, ArgMaxOfAnInputIsTheSameInEveryPlan) {
  EXPECT_EQ(Of("    %t : f32[4, n] = Transpose(%x)\n    %i : i64[1, n] = ArgMax(%t) {axis = 0}\n", "%i"),
            (std::vector<bool>{false}));
}

TEST(OutputsBehindDecisions, WhatFollowsADecisionMayJumpToo) {
  EXPECT_EQ(Of("    %e : f32[n, 4] = Exp(%x)\n    %b : bool[n, 4] = Less(%e, %x)\n    %w : f32[n, 4] = Where(%b, %x, "
               "%e)\n    %s : f32[n, 4] = Exp(%x)\n",
               "%w, %s"),
            (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace kiln
