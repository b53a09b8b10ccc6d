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

struct Jump {
  const char* name;
  const char* nodes;  // from %e, which arithmetic made
  const char* outputs;
  std::vector<bool> jumps;
};

TEST(OutputsBehindDecisions, EveryOpThatJumpsIsOneAndItsContinuousOutputsAreNot) {
  const Jump jumps[] = {
      {"Round", "    %r : f32[n, 4] = Round(%e)\n", "%r", {true}},
      {"Floor", "    %r : f32[n, 4] = Floor(%e)\n", "%r", {true}},
      {"Ceil", "    %r : f32[n, 4] = Ceil(%e)\n", "%r", {true}},
      {"Sign", "    %r : f32[n, 4] = Sign(%e)\n", "%r", {true}},
      {"Mod", "    %r : f32[n, 4] = Mod(%e, %x) {fmod = 1}\n", "%r", {true}},
      {"Shrink", "    %r : f32[n, 4] = Shrink(%e)\n", "%r", {true}},
      {"ThresholdedRelu", "    %r : f32[n, 4] = ThresholdedRelu(%e)\n", "%r", {true}},
      {"Relu", "    %r : f32[n, 4] = Relu(%e)\n", "%r", {false}},
      {"Round of an input", "    %r : f32[n, 4] = Round(%x)\n    %s : f32[n, 4] = Add(%r, %e)\n", "%s", {false}},
      {"what quantised values become",
       "    %r : f32[n, 4] = Round(%e)\n    %s : f32[n, 4] = Mul(%r, %x)\n",
       "%s",
       {true}},
  };
  for (const Jump& jump : jumps) {
    SCOPED_TRACE(jump.name);
    EXPECT_EQ(Of((std::string("    %e : f32[n, 4] = Exp(%x)\n") + jump.nodes).c_str(), jump.outputs), jump.jumps);
  }
}

// An image at positions that arithmetic made, and the image itself made by arithmetic.
TEST(OutputsBehindDecisions, SamplingJumpsByItsPositions) {
  const auto of = [](const char* nodes) {
    auto program = ParseProgram(std::string(R"(program "p" {
      symbol n in [1, 64]
      func main(%x: f32[1, 1, 4, 4], %g: f32[1, n, 4, 2]) -> (%y) {
)") + nodes + "  }\n}");
    EXPECT_TRUE(program.has_value()) << ToString(program.error());
    return OutputsBehindDecisions(CanonicalSegment(*program, FindSegments(*program).at(0)).value());
  };
  EXPECT_EQ(of("%e : f32[1, n, 4, 2] = Tanh(%g)\n%y : f32[1, 1, n, 4] = GridSample(%x, %e) {mode = \"nearest\"}\n"),
            std::vector<bool>{true});
  EXPECT_EQ(of("%e : f32[1, 1, 4, 4] = Tanh(%x)\n%y : f32[1, 1, n, 4] = GridSample(%e, %g) {mode = \"nearest\"}\n"),
            std::vector<bool>{false});
}

TEST(OutputsBehindDecisions, TheIndicesOfTopKJumpAndItsValuesDoNot) {
  auto program = ParseProgram(R"(program "p" {
    symbol n in [1, 64]
    constant two : i64[1] = [2]
    func main(%x: f32[n, 4]) -> (%v, %i) {
      %k : i64[1] = Constant() {value = @two}
      %e : f32[n, 4] = Exp(%x)
      %v : f32[n, 2], %i : i64[n, 2] = TopK(%e, %k)
    }
  })");
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  EXPECT_EQ(OutputsBehindDecisions(CanonicalSegment(*program, FindSegments(*program).at(0)).value()),
            (std::vector<bool>{false, true}));
}

TEST(OutputsBehindDecisions, TheIndicesOfMaxPoolJumpAndItsValuesDoNot) {
  auto program = ParseProgram(R"(program "p" {
    symbol n in [1, 64]
    func main(%x: f32[n, 1, 4, 4]) -> (%y, %i) {
      %e : f32[n, 1, 4, 4] = Tanh(%x)
      %y : f32[n, 1, 2, 2], %i : i64[n, 1, 2, 2] = MaxPool(%e) {kernel_shape = [2, 2], strides = [2, 2]}
    }
  })");
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  EXPECT_EQ(OutputsBehindDecisions(CanonicalSegment(*program, FindSegments(*program).at(0)).value()),
            (std::vector<bool>{false, true}));
}

TEST(OutputsBehindDecisions, WhatFollowsADecisionMayJumpToo) {
  EXPECT_EQ(Of("    %e : f32[n, 4] = Exp(%x)\n    %b : bool[n, 4] = Less(%e, %x)\n    %w : f32[n, 4] = Where(%b, %x, "
               "%e)\n    %s : f32[n, 4] = Exp(%x)\n",
               "%w, %s"),
            (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace kiln
