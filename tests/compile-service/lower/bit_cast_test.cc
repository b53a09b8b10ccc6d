// BitCast, and copies: bits that are moved whatever they mean.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

lower::LoweredSegment Check(const std::string& text, std::vector<std::vector<int64_t>> shapes) {
  CompiledRunner runner(Target::kX86V3);
  const lower::LoweredSegment lowered = CheckSegment(
      SegmentOf(text),
      {.shapes = std::move(shapes), .targets = {Target::kX86V3}, .runner = [&](Target) { return runner.runner(); }});
  EXPECT_TRUE(lowered.coverage.reference_ops.empty()) << text << Describe(lowered);
  return lowered;
}

std::string Cast(DType from, DType to) {
  const std::string a(DTypeName(from)), b(DTypeName(to));
  return "program \"p\" { symbol n\n symbol m\n func main(%x: " + a + "[n, m]) -> (%y, %z) {\n %t : " + a +
         "[m, n] = Transpose(%x) {perm = [1, 0]}\n %y : " + b +
         "[m, n] = BitCast(%t) {to = " + std::to_string(static_cast<int>(to)) + "}\n %z : " + a +
         "[m, n] = BitCast(%y) {to = " + std::to_string(static_cast<int>(from)) + "} } }";
}

TEST(BitCast, OfEveryWidthThereAndBack) {
  const std::array<std::pair<DType, DType>, 8> casts = {{{DType::kF32, DType::kI32},
                                                         {DType::kI32, DType::kF32},
                                                         {DType::kF64, DType::kU64},
                                                         {DType::kI64, DType::kF64},
                                                         {DType::kF16, DType::kU16},
                                                         {DType::kI16, DType::kBF16},
                                                         {DType::kI8, DType::kU8},
                                                         {DType::kU32, DType::kF32}}};
  for (const auto& [from, to] : casts) Check(Cast(from, to), {{3, 5}, {1, 33}, {0, 4}});
}

// A copy of floats through floats would quieten signalling NaNs, and one of halves through f32 would lose payloads.
TEST(BitCast, ACopyKeepsTheBitsOfNaNs) {
  const std::string text = R"(program "p" { symbol n
 func main(%a: f16[n, 3], %b: f16[n, 2]) -> (%y) { %y : f16[n, 5] = Concat(%a, %b) {axis = 1} } })";
  const lower::LoweredSegment lowered = Check(text, {{4}, {7}});
  CompiledRunner runner(Target::kX86V3);
  std::array<uint16_t, 12> a;
  std::array<uint16_t, 8> b;
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint16_t>(0x7c01 + i);  // signalling
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<uint16_t>(0xfe20 + i);
  const TensorRef inputs[] = {MakeRef(DType::kF16, {4, 3}, a.data()), MakeRef(DType::kF16, {4, 2}, b.data())};
  const auto outputs = RunLowered(lowered, std::vector<int64_t>{4}, inputs, {}, 8, runner.runner());
  ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
  const auto* y = outputs->at(0).ref.as<const uint16_t>();
  for (size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(std::memcmp(y + 5 * row, a.data() + 3 * row, 6), 0);
    EXPECT_EQ(std::memcmp(y + 5 * row + 3, b.data() + 2 * row, 4), 0);
  }
}

}  // namespace
}  // namespace kiln::testing
