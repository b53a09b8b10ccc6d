// Pads that repeat elements of their input, as concatenations of views.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/compile-service/lower/check_program.h"

namespace kiln::testing {
namespace {

std::string Padded(const std::string& dims, const std::string& mode, const std::string& pads,
                   const std::string& type = "f32") {
  const std::string constant = "i64[" + std::to_string(1 + std::count(pads.begin(), pads.end(), ',')) + "]";
  return "program \"p\" { symbol n\n symbol m\n constant pads : " + constant + " = [" + pads +
         "]\n func main(%x: " + type + dims + ") -> (%y) {\n %pads : " + constant +
         " = Constant() {value = @pads}\n %p : " + type + "[*] = Pad(%x, %pads) {mode = \"" + mode +
         "\"}\n %y : " + type + "[*] = Neg(%p) } }";
}

void Check(const std::string& text, std::vector<std::vector<int64_t>> shapes, bool kernels = true) {
  const lower::LoweredSegment lowered = CheckSegment(SegmentOf(text), {.shapes = std::move(shapes)});
  EXPECT_EQ(lowered.coverage.reference_ops.empty(), kernels) << text << Describe(lowered);
}

TEST(Pads, ReflectEdgeAndWrapAreGeneratedOverAnySize) {
  for (const char* mode : {"reflect", "edge", "wrap"}) {
    Check(Padded("[n, m]", mode, "0, 3, 0, 2"), {{2, 9}, {1, 4}, {3, 5}});
    Check(Padded("[n, m]", mode, "1, 0, 2, 1"), {{4, 4}, {3, 2}});
    Check(Padded("[2, n, m]", mode, "0, 0, 64, 0, 0, 64"), {{1, 320}, {3, 65}});
    Check(Padded("[n, 7, m]", mode, "0, 2, 1, 0, 0, 0"), {{2, 5}, {1, 2}});
  }
  Check(Padded("[n, m]", "edge", "0, 3, 0, 2"), {{2, 9}, {2, 1}, {0, 3}});
}

TEST(Pads, WrappingMoreThanOnceIsNotGenerated) {
  Check(Padded("[n, m]", "wrap", "0, 3, 0, 2"), {{2, 9}, {2, 3}, {2, 1}});  // the generic plan does not hold for one
}

TEST(Pads, OtherTypesToo) {
  Check(Padded("[n, m]", "reflect", "0, 2, 0, 1", "i64"), {{2, 5}});
  Check(Padded("[n, m]", "edge", "1, 2, 3, 1", "f16"), {{2, 5}});
}

// A short signal has nothing to reflect: that is an error of the op, which the interpreter reports. The plan does not
// hold there.
TEST(Pads, AReflectingPlanHoldsWhereThereIsEnoughToReflect) {
  const Segment segment = SegmentOf(Padded("[n, m]", "reflect", "0, 3, 0, 2"));
  const lower::LoweredSegment lowered =
      lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, {2, 9}, {}}).value();
  EXPECT_TRUE(GuardAdmits(lowered.plan.guard, lowered.plan.symbols, std::vector<int64_t>{2, 4}));
  EXPECT_FALSE(GuardAdmits(lowered.plan.guard, lowered.plan.symbols, std::vector<int64_t>{2, 3}));
}

TEST(Pads, PadsThatTakeAwayOrAreNotKnownStayReferenceSteps) {
  Check(Padded("[n, m]", "edge", "0, -1, 0, 2"), {{2, 9}}, false);
}

// Which side of the image takes the odd one depends on its size.
TEST(SamePads, AreGeneratedOverAnySize) {
  const std::string head =
      "program \"p\" { symbol n\n symbol m\n constant w : f32[4, 3, 3, 2] = splat 0.5\n"
      "func main(%x: f32[2, 3, n, m]) -> (%y) {\n";
  const std::string conv = head + "%w : f32[4, 3, 3, 2] = Constant() {value = @w}\n%y : f32[*] = Conv(%x, %w) ";
  for (const std::string side : {"UPPER", "LOWER"}) {
    const std::string mode = "auto_pad = \"SAME_" + side + "\"";
    Check(head + "%y : f32[*] = MaxPool(%x) {" + mode + ", kernel_shape = [3, 3], strides = [2, 2]} } }",
          {{8, 9}, {7, 7}, {1, 1}, {6, 5}, {2, 1}});
    Check(head + "%y : f32[*] = MaxPool(%x) {" + mode + ", kernel_shape = [2, 4], strides = [1, 3]} } }",
          {{8, 9}, {1, 2}, {5, 7}});
    Check(conv + "{" + mode + ", strides = [2, 2]} } }", {{8, 9}, {7, 6}, {1, 1}});
    Check(conv + "{" + mode + ", strides = [3, 1], dilations = [1, 2]} } }", {{8, 9}, {7, 6}, {3, 1}});
  }
}

}  // namespace
}  // namespace kiln::testing
