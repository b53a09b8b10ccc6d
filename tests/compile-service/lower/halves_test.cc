// Programs on f16 and bf16 as generated kernels against the interpreter: f32 inside, rounded where the program rounds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

struct Case {
  const char* name;
  const char* text;  // H stands for the dtype
  std::vector<std::vector<int64_t>> shapes;
};

const Case kCases[] = {
    {"Chain",
     R"(program "p" { symbol n
      func main(%x: H[n, 24], %b: H[24]) -> (%y) {
        %a : H[n, 24] = Add(%x, %b)
        %m : H[n, 24] = Mul(%a, %x)
        %y : H[n, 24] = Gelu(%m) } })",
     {{5}, {0}, {1}, {33}}},
    {"MatMulBiasRelu",
     R"(program "p" { symbol n
      constant w : H[24, 40] = splat 0.5
      constant b : H[40] = splat 0.5
      func main(%x: H[n, 24]) -> (%y) {
        %w : H[24, 40] = Constant() {value = @w}
        %b : H[40] = Constant() {value = @b}
        %m : H[n, 40] = MatMul(%x, %w)
        %a : H[n, 40] = Add(%m, %b)
        %y : H[n, 40] = Relu(%a) } })",
     {{5}, {0}, {1}, {17}}},
    {"SoftmaxAndNormalization",
     R"(program "p" { symbol n
      constant s : H[48] = splat 0.5
      func main(%x: H[n, 48]) -> (%y, %z) {
        %s : H[48] = Constant() {value = @s}
        %y : H[n, 48] = Softmax(%x) {axis = -1}
        %z : H[n, 48] = LayerNormalization(%x, %s, %s) {axis = -1} } })",
     {{5}, {0}, {1}, {17}}},
    {"ConvolutionAndPool",
     R"(program "p" { symbol h
      constant w : H[8, 3, 3, 3] = splat 0.5
      constant b : H[8] = splat 0.5
      func main(%x: H[1, 3, h, 12]) -> (%y) {
        %w : H[8, 3, 3, 3] = Constant() {value = @w}
        %b : H[8] = Constant() {value = @b}
        %c : H[1, 8, h, 12] = Conv(%x, %w, %b) {pads = [1, 1, 1, 1]}
        %y : H[*] = MaxPool(%c) {kernel_shape = [2, 2], strides = [2, 2]} } })",
     {{6}, {2}, {11}}},
    {"MovesAndSelections",
     R"(program "p" { symbol n
      func main(%x: H[n, 6], %z: H[n, 6]) -> (%t, %c, %w) {
        %t : H[6, n] = Transpose(%x) {perm = [1, 0]}
        %c : H[n, 12] = Concat(%x, %z) {axis = 1}
        %g : bool[n, 6] = Greater(%x, %z)
        %w : H[n, 6] = Where(%g, %x, %z) } })",
     {{5}, {0}, {1}}},
    {"CastsBothWays",
     R"(program "p" { symbol n
      func main(%x: f32[n, 9], %i: i64[n, 9], %h: H[n, 9]) -> (%a, %c) {
        %n : H[n, 9] = Cast(%x) {to = NUMBER}
        %f : f32[n, 9] = Cast(%h) {to = 1}
        %w : f32[n, 9] = Cast(%n) {to = 1}
        %a : f32[n, 9] = Add(%f, %w)
        %c : i64[n, 9] = Cast(%h) {to = 7} } })",
     {{5}, {0}, {1}, {19}}},
};

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

TEST(HalvesTest, KernelsGiveWhatTheInterpreterGives) {
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(fmt::format("{} in {}", c.name, DTypeName(dtype)));
      std::string text = Replaced(c.text, "H[", std::string(DTypeName(dtype)) + "[");
      text = Replaced(std::move(text), "NUMBER", std::to_string(static_cast<int>(dtype)));
      const Segment segment = SegmentOf(text);
      ASSERT_FALSE(segment.body.functions.empty());
      CheckOptions options{.shapes = c.shapes, .targets = HostTargets()};
      const lower::LoweredSegment naive = CheckSegment(segment, options);
      EXPECT_EQ(naive.coverage.reference_nodes, 0);
      options.runner = CompiledRunners();
      CheckSegment(segment, options);
    }
  }
}

// Every intermediate value is rounded: a sum that only f32 can tell from 2048 must not survive.
TEST(HalvesTest, IntermediateValuesAreRounded) {
  const Segment segment = SegmentOf(R"(program "p" { symbol n
      constant big : f16[] = [2048]
      func main(%x: f16[n]) -> (%y) {
        %b : f16[] = Constant() {value = @big}
        %s : f16[n] = Add(%x, %b)
        %y : f16[n] = Sub(%s, %b) } })");
  ASSERT_FALSE(segment.body.functions.empty());
  CheckOptions options{.shapes = {{64}}, .targets = HostTargets(), .tolerance = 0};
  EXPECT_EQ(CheckSegment(segment, options).coverage.reference_nodes, 0);
}

}  // namespace
}  // namespace kiln::testing
