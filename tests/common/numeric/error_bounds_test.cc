#include "common/numeric/error_bounds.h"

#include <gtest/gtest.h>

#include "common/bytecode/program_text.h"

namespace kiln {
namespace {

std::vector<ErrorBound> Of(const std::string& nodes, const std::string& outputs,
                           NumericMode mode = NumericMode::kDefault, std::vector<int64_t> symbols = {8}) {
  auto program = ParseProgram(
      "program \"p\" {\n  symbol n in [1, 4096]\n  func main(%x: f32[n, 4], %y: f32[n, 4], %w: "
      "f32[4, 8], %a: f32[8, n], %b: f32[n, 8]) -> (" +
      outputs + ") {\n" + nodes + "  }\n}");
  EXPECT_TRUE(program.has_value()) << ToString(program.error());
  return program.has_value() ? OutputErrorBounds(*program, symbols, mode) : std::vector<ErrorBound>(8);
}

TEST(ErrorBounds, MovesKeepEveryBitAndPicksEveryValue) {
  const auto bounds = Of("    %t : f32[4, n] = Transpose(%x)\n    %r : f32[4, n] = Relu(%t)\n", "%t, %r");
  EXPECT_EQ(bounds[0].scope, ErrorScope::kBits);
  EXPECT_EQ(bounds[1].scope, ErrorScope::kEqual);
}

TEST(ErrorBounds, ASumOfExactValuesIsHeldElementWise_OfInexactOnesToTheRow) {
  const auto bounds =
      Of("    %s : f32[n, 4] = Add(%x, %y)\n    %m : f32[n, 4] = Mul(%x, %y)\n"
         "    %t : f32[n, 4] = Add(%m, %y)\n",
         "%s, %m, %t");
  EXPECT_EQ(bounds[0].scope, ErrorScope::kElement);
  EXPECT_EQ(bounds[1].scope, ErrorScope::kElement);
  EXPECT_EQ(bounds[2].scope, ErrorScope::kRow);
  EXPECT_LT(bounds[0].relative, 4e-6);
}

TEST(ErrorBounds, ContractionsGrowWithTheirLength) {
  const std::string product = "    %c : f32[8, 8] = MatMul(%a, %b)\n";
  const auto shorter = Of(product, "%c", NumericMode::kDefault, {16});
  const auto longer = Of(product, "%c", NumericMode::kDefault, {1024});
  const auto unknown = Of(product, "%c", NumericMode::kDefault, {});
  EXPECT_EQ(shorter[0].scope, ErrorScope::kRow);
  EXPECT_GT(longer[0].relative, 3 * shorter[0].relative);
  EXPECT_GT(unknown[0].relative, longer[0].relative);
  EXPECT_LT(longer[0].relative, 1e-4);
}

TEST(ErrorBounds, TheLongestPathCounts) {
  std::string nodes;
  for (int i = 0; i < 50; ++i)
    nodes += "    %v" + std::to_string(i) + " : f32[n, 4] = Mul(%" + (i == 0 ? "x" : "v" + std::to_string(i - 1)) +
             ", %y)\n";
  const auto bounds = Of(nodes + "    %s : f32[n, 4] = Mul(%v49, %v0)\n", "%v0, %v49, %s");
  EXPECT_GT(bounds[1].relative, 10 * bounds[0].relative);
  EXPECT_GT(bounds[2].relative, bounds[1].relative);
  EXPECT_LT(bounds[2].relative, 1.1 * bounds[1].relative);
}

TEST(ErrorBounds, ModesAreOrderedAndCapped) {
  const std::string deep = [] {
    std::string nodes = "    %v0 : f32[n, 4] = Softmax(%x) {axis = 1}\n";
    for (int i = 1; i < 400; ++i)
      nodes += "    %v" + std::to_string(i) + " : f32[n, 4] = Softmax(%v" + std::to_string(i - 1) + ") {axis = 1}\n";
    return nodes;
  }();
  double before = 0;
  for (NumericMode mode : {NumericMode::kStrict, NumericMode::kDefault, NumericMode::kFast}) {
    const auto shallow = Of("    %c : f32[n, 8] = MatMul(%x, %w)\n", "%c", mode);
    EXPECT_GT(shallow[0].relative, before);
    before = shallow[0].relative;
    EXPECT_LE(Of(deep, "%v399", mode)[0].relative, ToleranceOf(mode).rtol + 0x1p-22);
  }
}

// What was rounded to a 16-bit type may differ by its unit, also after it is f32 again.
TEST(ErrorBounds, HalvesUpstreamLeaveRoomForTheirUnit) {
  const auto bounds =
      Of("    %h : f16[n, 4] = Cast(%x) {to = 10}\n    %d : f16[n, 4] = Add(%h, %h)\n"
         "    %f : f32[n, 4] = Cast(%d) {to = 1}\n    %e : f32[n, 4] = Add(%x, %y)\n",
         "%f, %e");
  EXPECT_GT(bounds[0].relative, 0x1p-10);
  EXPECT_LT(bounds[0].relative, 0x1p-6);
  EXPECT_LT(bounds[1].relative, 1e-5);
}

TEST(ErrorBounds, IntegersAreExactWhateverIsUpstream) {
  const auto bounds = Of("    %e : f32[n, 4] = Exp(%x)\n    %i : i64[n, 1] = ArgMax(%e) {axis = 1}\n", "%i");
  EXPECT_EQ(bounds[0].scope, ErrorScope::kEqual);
}

// A row of the op table without a class of its own takes its family's; none is looser than its family says by accident.
TEST(ErrorBounds, OpsOfMovingFamiliesMoveUnlessNamed) {
  EXPECT_EQ(ErrorClassOf(OpInfo(TensorOp::kConcat)), ErrorClass::kMove);
  EXPECT_EQ(ErrorClassOf(OpInfo(TensorOp::kResize)), ErrorClass::kReduction);
  EXPECT_EQ(ErrorClassOf(OpInfo(TensorOp::kTanh)), ErrorClass::kFunction);
  EXPECT_EQ(ErrorClassOf(OpInfo(TensorOp::kReduceMax)), ErrorClass::kPick);
  EXPECT_EQ(ErrorClassOf(OpInfo(TensorOp::kLayerNormalization)), ErrorClass::kNormalization);
}

}  // namespace
}  // namespace kiln
