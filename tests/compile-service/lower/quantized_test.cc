// Quantised ops as generated kernels: bit for bit what the interpreter gives, on every rung of the host, at every
// remainder of four.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

// `count` numbers of a byte dtype, the extremes among them.
std::string Bytes(bool is_signed, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  const int low = is_signed ? -128 : 0;
  std::vector<int> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(low + static_cast<int>(random() % 256));
  if (count > 1) values[0] = low, values[1] = low + 255;
  return fmt::format("[{}]", fmt::join(values, ", "));
}

void ExpectKernelsOnly(const std::string& text, std::vector<std::vector<int64_t>> shapes, float scale = 300) {
  const Segment segment = SegmentOf(text);
  ASSERT_FALSE(segment.body.functions.empty()) << text;
  CheckOptions options{.shapes = std::move(shapes), .targets = HostTargets(), .tolerance = 0, .input_scale = scale};
  const lower::LoweredSegment naive = CheckSegment(segment, options);
  EXPECT_EQ(naive.coverage.reference_nodes, 0) << text;
  options.runner = CompiledRunners();
  CheckSegment(segment, options);
}

struct Types {
  const char* a;
  const char* b;
};
constexpr Types kTypes[] = {{"u8", "i8"}, {"i8", "i8"}, {"u8", "u8"}, {"i8", "u8"}};

bool IsSigned(const char* dtype) {
  return dtype[0] == 'i';
}

TEST(QuantizedTest, LinearOpsAreExact) {
  for (const char* byte : {"u8", "i8"}) {
    ExpectKernelsOnly(fmt::format(R"(program "p" {{ symbol n
      constant s : f32[] = [0.3]
      constant z : {0}[] = [7]
      func main(%x: f32[n, 37]) -> (%q, %y) {{
        %s : f32[] = Constant() {{value = @s}}
        %z : {0}[] = Constant() {{value = @z}}
        %q : {0}[n, 37] = QuantizeLinear(%x, %s, %z)
        %d : f32[n, 37] = DequantizeLinear(%q, %s, %z)
        %y : f32[n, 37] = Neg(%d) }} }})",
                                  byte),
                      {{5}, {0}, {1}, {33}});
  }
}

TEST(QuantizedTest, MatMulIntegerAtEveryRemainder) {
  for (const Types& types : kTypes) {
    for (int64_t k : {1, 6, 37, 64}) {
      for (int64_t n : {5, 70}) {
        SCOPED_TRACE(fmt::format("{} x {}, k {} n {}", types.a, types.b, k, n));
        ExpectKernelsOnly(fmt::format(R"(program "p" {{ symbol m
      constant w : {1}[{2}, {3}] = {4}
      constant za : {0}[] = [{5}]
      constant zb : {1}[] = [{6}]
      func main(%x: {0}[m, {2}]) -> (%y) {{
        %w : {1}[{2}, {3}] = Constant() {{value = @w}}
        %za : {0}[] = Constant() {{value = @za}}
        %zb : {1}[] = Constant() {{value = @zb}}
        %y : i32[m, {3}] = MatMulInteger(%x, %w, %za, %zb) }} }})",
                                      types.a, types.b, k, n, Bytes(IsSigned(types.b), k * n, 3),
                                      IsSigned(types.a) ? -9 : 77, IsSigned(types.b) ? 0 : 128),
                          {{5}, {0}, {1}, {19}});
      }
    }
  }
}

TEST(QuantizedTest, ZeroPointOfTheCallIsSubtracted) {
  ExpectKernelsOnly(fmt::format(R"(program "p" {{ symbol m
      constant w : i8[10, 6] = {}
      func main(%x: u8[m, 10], %z: u8[]) -> (%y) {{
        %w : i8[10, 6] = Constant() {{value = @w}}
        %y : i32[m, 6] = MatMulInteger(%x, %w, %z) }} }})",
                                Bytes(true, 60, 5)),
                    {{5}, {1}, {8}});
}

TEST(QuantizedTest, ProductsRequantizePerTensorAndPerColumn) {
  for (const char* scales : {"f32[1] = [0.02]", "f32[9] = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09]"}) {
    const std::string dims = std::string(scales).substr(0, std::string(scales).find(" ="));
    for (const Types& types : kTypes) {
      SCOPED_TRACE(fmt::format("{} x {}, {}", types.a, types.b, dims));
      ExpectKernelsOnly(fmt::format(R"(program "p" {{ symbol m
      constant w : {1}[21, 9] = {2}
      constant xs : f32[] = [0.017]
      constant xz : {0}[] = [{3}]
      constant ws : {5}
      constant wz : {1}[] = [{4}]
      constant ys : f32[] = [0.11]
      func main(%x: {0}[m, 21]) -> (%y) {{
        %w : {1}[21, 9] = Constant() {{value = @w}}
        %xs : f32[] = Constant() {{value = @xs}}
        %xz : {0}[] = Constant() {{value = @xz}}
        %ws : {6} = Constant() {{value = @ws}}
        %wz : {1}[] = Constant() {{value = @wz}}
        %ys : f32[] = Constant() {{value = @ys}}
        %y : {0}[m, 9] = QLinearMatMul(%x, %xs, %xz, %w, %ws, %wz, %ys, %xz) }} }})",
                                    types.a, types.b, Bytes(IsSigned(types.b), 189, 7), IsSigned(types.a) ? 3 : 120,
                                    IsSigned(types.b) ? 0 : 128, scales, dims),
                        {{5}, {0}, {1}, {11}});
    }
  }
}

TEST(QuantizedTest, ConvolutionsRequantize) {
  struct Case {
    int64_t channels, out, group, kernel;
    const char* attributes;
  };
  const Case cases[] = {
      {1, 5, 1, 3, "pads = [1, 1, 1, 1]"},
      {3, 17, 1, 3, "pads = [1, 0, 1, 2], strides = [2, 1]"},
      {8, 4, 1, 1, "strides = [1, 1]"},
      {6, 4, 2, 3, "group = 2, pads = [1, 1, 1, 1], dilations = [2, 1]"},
      {5, 70, 1, 2, "strides = [2, 2]"},
      {19, 19, 19, 3, "group = 19, pads = [1, 1, 1, 1]"},
      {4, 4, 4, 2, "group = 4, pads = [0, 1, 1, 0], strides = [2, 1], dilations = [1, 3]"},
  };
  for (const Case& c : cases) {
    for (const Types& types : kTypes) {
      SCOPED_TRACE(fmt::format("{} x {}, {} channels, {}", types.a, types.b, c.channels, c.attributes));
      const int64_t depth = c.channels / c.group;
      ExpectKernelsOnly(
          fmt::format(R"(program "p" {{ symbol n symbol h
      constant w : {1}[{3}, {4}, {5}, {5}] = {6}
      constant bias : i32[{3}] = {7}
      constant xs : f32[] = [0.017]
      constant xz : {0}[] = [{8}]
      constant ws : f32[] = [0.02]
      constant wz : {1}[] = [{9}]
      constant ys : f32[] = [0.21]
      func main(%x: {0}[n, {2}, h, 7]) -> (%y) {{
        %w : {1}[{3}, {4}, {5}, {5}] = Constant() {{value = @w}}
        %bias : i32[{3}] = Constant() {{value = @bias}}
        %xs : f32[] = Constant() {{value = @xs}}
        %xz : {0}[] = Constant() {{value = @xz}}
        %ws : f32[] = Constant() {{value = @ws}}
        %wz : {1}[] = Constant() {{value = @wz}}
        %ys : f32[] = Constant() {{value = @ys}}
        %y : {0}[*] = QLinearConv(%x, %xs, %xz, %w, %ws, %wz, %ys, %xz, %bias) {{{10}}} }} }})",
                      types.a, types.b, c.channels, c.out, depth, c.kernel,
                      Bytes(IsSigned(types.b), c.out * depth * c.kernel * c.kernel, 11), Bytes(true, c.out, 13),
                      IsSigned(types.a) ? -5 : 131, IsSigned(types.b) ? 0 : 128, c.attributes),
          {{1, 6}, {2, 9}, {0, 5}});
    }
  }
}

TEST(QuantizedTest, PaddingOfAConvolutionIsTheZeroPointOfTheCall) {
  ExpectKernelsOnly(fmt::format(R"(program "p" {{ symbol h
      constant w : i8[4, 3, 3, 3] = {}
      func main(%x: u8[1, 3, h, 5], %z: u8[]) -> (%y) {{
        %w : i8[4, 3, 3, 3] = Constant() {{value = @w}}
        %y : i32[1, 4, h, 5] = ConvInteger(%x, %w, %z) {{pads = [1, 1, 1, 1]}} }} }})",
                                Bytes(true, 108, 17)),
                    {{4}, {1}, {9}});
}

TEST(QuantizedTest, BytesPoolCopyAndCompare) {
  for (const char* byte : {"u8", "i8"}) {
    ExpectKernelsOnly(fmt::format(R"(program "p" {{ symbol h
      constant perm : {0}[] = [5]
      func main(%x: {0}[1, 5, h, 8]) -> (%m, %t, %c, %g) {{
        %p : {0}[] = Constant() {{value = @perm}}
        %m : {0}[*] = MaxPool(%x) {{kernel_shape = [2, 2], strides = [2, 2], pads = [1, 1, 0, 0]}}
        %t : {0}[1, h, 8, 5] = Transpose(%x) {{perm = [0, 2, 3, 1]}}
        %c : {0}[1, 10, h, 8] = Concat(%x, %x) {{axis = 1}}
        %g : {0}[1, 5, h, 8] = Max(%x, %p) }} }})",
                                  byte),
                      {{4}, {2}, {9}});
  }
}

TEST(QuantizedTest, WeightsAwayFromTheMiddleStayReferenceSteps) {
  const Segment segment = SegmentOf(fmt::format(R"(program "p" {{ symbol m
      constant w : u8[6, 5] = {}
      constant zb : u8[] = [90]
      func main(%x: u8[m, 6]) -> (%y) {{
        %w : u8[6, 5] = Constant() {{value = @w}}
        %za : u8[] = Constant() {{value = @zb}}
        %y : i32[m, 5] = MatMulInteger(%x, %w, %za, %za) }} }})",
                                                Bytes(false, 30, 19)));
  const lower::LoweredSegment lowered = CheckSegment(segment, {.shapes = {{5}, {1}}});
  EXPECT_EQ(lowered.coverage.reference_nodes, 1);
}

}  // namespace
}  // namespace kiln::testing
