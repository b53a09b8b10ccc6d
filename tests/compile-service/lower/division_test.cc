// Quotients and remainders of integers by known numbers are generated; a 0 among them, or divisors that calls give, are
// left to the op, which reports it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

std::string Divided(const std::string& type, const std::string& node, const std::string& divisors) {
  const std::string constant = type + "[" + std::to_string(1 + std::count(divisors.begin(), divisors.end(), ',')) + "]";
  return "program \"p\" { symbol n symbol m\n constant d : " + constant + " = [" + divisors +
         "]\n func main(%x: " + type + "[n, m, 4], %f: " + type + "[n, m, 4]) -> (%y) {\n %d : " + constant +
         " = Constant() {value = @d}\n %q : " + type + "[*] = " + node + "\n %y : " + type + "[*] = Add(%q, %f) } }";
}

TEST(IntegerDivision, ByKnownNumbersIsGenerated) {
  for (const std::string type : {"i32", "i64"})
    for (const std::string node : {"Div(%x, %d)", "Mod(%x, %d)", "Mod(%x, %d) {fmod = 1}"})
      for (const std::string divisors : {"3", "-3", "1", "-1", "2, -1, -7, 1"})
        CheckBits(Divided(type, node, divisors), {{3, 5}, {1, 1}, {0, 2}, {7, 9}});
}

TEST(IntegerDivision, ByZeroIsLeftToTheOp) {
  const auto reference = [](const std::string& text) {
    const Segment segment = SegmentOf(text);
    const auto lowered = lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, {2, 9}, {}});
    EXPECT_TRUE(lowered.has_value());
    return lowered.has_value() ? lowered->coverage.reference_nodes : 0;
  };
  EXPECT_GT(reference(Divided("i64", "Div(%x, %d)", "2, 0, 3, 1")), 0u);
  EXPECT_GT(reference(Divided("i32", "Mod(%x, %d)", "0")), 0u);
  EXPECT_GT(reference(Divided("i64", "Div(%x, %f)", "2")), 0u);
  EXPECT_EQ(reference(Divided("i64", "Div(%x, %d)", "2")), 0u);
}

}  // namespace
}  // namespace kiln::testing
