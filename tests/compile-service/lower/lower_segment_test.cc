// Plans against the interpreter: every program at many shapes, generic and exact, sizes 0 and 1 included.
#include <gtest/gtest.h>

#include "common/bytecode/program_text.h"
#include "tests/compile-service/lower/check_program.h"

namespace kiln::testing {
namespace {

struct Case {
  const char* name;
  const char* text;
  std::vector<std::vector<int64_t>> shapes;
  float input_scale = 1.0f;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

class LowerSegmentTest : public ::testing::TestWithParam<Case> {};

TEST_P(LowerSegmentTest, PlansGiveWhatTheInterpreterGives) {
  const Segment segment = SegmentOf(GetParam().text);
  ASSERT_FALSE(segment.body.functions.empty());
  const lower::LoweredSegment lowered =
      CheckSegment(segment, {.shapes = GetParam().shapes, .input_scale = GetParam().input_scale});
  EXPECT_EQ(lowered.coverage.reference_nodes, 0) << Describe(lowered);
  EXPECT_TRUE(lowered.coverage.fallbacks.empty()) << lowered.coverage.fallbacks.front();
}

const Case kCases[] = {
    {"Chain",
     R"(program "p" { symbol n
      func main(%x: f32[n, 24], %b: f32[24]) -> (%y) {
        %a : f32[n, 24] = Add(%x, %b)
        %m : f32[n, 24] = Mul(%a, %x)
        %y : f32[n, 24] = Gelu(%m) } })",
     {{5}, {0}, {1}, {33}}},
    {"BroadcastBothWays",
     R"(program "p" { symbol n symbol m
      func main(%x: f32[n, 1, 6], %z: f32[m, 1]) -> (%y) {
        %y : f32[n, m, 6] = Sub(%x, %z) } })",
     {{5, 3}, {0, 3}, {1, 1}, {4, 0}, {7, 9}}},
    {"UnprovenBroadcast",
     R"(program "p" { symbol n symbol m
      func main(%x: f32[n, 6], %z: f32[m, 6]) -> (%y) {
        %y : f32[*] = Add(%x, %z) } })",
     {{4, 4}, {1, 4}, {4, 1}, {2, 2}, {1, 1}}},
    {"TransposeReshape",
     R"(program "p" { symbol n
      constant s : i64[2] = [-1, 12]
      func main(%x: f32[n, 3, 4]) -> (%y) {
        %c : i64[2] = Constant() {value = @s}
        %t : f32[n, 4, 3] = Transpose(%x) {perm = [0, 2, 1]}
        %r : f32[n, 12] = Reshape(%t, %c)
        %y : f32[n, 12] = Relu(%r) } })",
     {{5}, {0}, {1}}},
    {"CastAndCompare",
     R"(program "p" { symbol n
      constant h : f32[] = [0.25]
      func main(%x: f32[n, 5]) -> (%y, %i) {
        %c : f32[] = Constant() {value = @h}
        %g : bool[n, 5] = Greater(%x, %c)
        %y : f32[n, 5] = Where(%g, %x, %c)
        %i : i64[n, 5] = Cast(%g) {to = 7} } })",
     {{5}, {0}, {1}}},
    {"Mlp",
     R"(program "p" { symbol n
      constant w : f32[24, 40] = splat 0.5
      constant b : f32[40] = splat 0.5
      func main(%x: f32[n, 24]) -> (%y) {
        %w : f32[24, 40] = Constant() {value = @w}
        %b : f32[40] = Constant() {value = @b}
        %m : f32[n, 40] = MatMul(%x, %w)
        %a : f32[n, 40] = Add(%m, %b)
        %y : f32[n, 40] = Relu(%a) } })",
     {{5}, {0}, {1}, {8}, {17}}},
    {"GemmTransposed",
     R"(program "p" { symbol n
      constant w : f32[40, 24] = splat 0.5
      constant b : f32[40] = splat 0.5
      func main(%x: f32[24, n]) -> (%y) {
        %w : f32[40, 24] = Constant() {value = @w}
        %b : f32[40] = Constant() {value = @b}
        %y : f32[n, 40] = Gemm(%x, %w, %b) {alpha = 0.5, beta = 2.0, transA = 1, transB = 1} } })",
     {{5}, {0}, {1}, {19}}},
    {"Attention",
     R"(program "p" { symbol b symbol n
      constant k : f32[] = [0.35]
      func main(%q: f32[b, 2, n, 7], %k: f32[b, 2, n, 7], %v: f32[b, 2, n, 7]) -> (%y) {
        %s : f32[] = Constant() {value = @k}
        %t : f32[b, 2, 7, n] = Transpose(%k) {perm = [0, 1, 3, 2]}
        %p : f32[b, 2, n, n] = MatMul(%q, %t)
        %c : f32[b, 2, n, n] = Mul(%p, %s)
        %w : f32[b, 2, n, n] = Softmax(%c) {axis = -1}
        %o : f32[b, 2, n, 7] = MatMul(%w, %v)
        %y : f32[b, n, 2, 7] = Transpose(%o) {perm = [0, 2, 1, 3]} } })",
     {{2, 5}, {0, 3}, {1, 1}, {1, 0}, {3, 20}}},
    {"ComposedLayerNorm",
     R"(program "p" { symbol n
      constant e : f32[] = [1e-5]
      constant two : f32[] = [2.0]
      constant g : f32[20] = splat 0.5
      constant b : f32[20] = splat 0.5
      constant a : i64[1] = [-1]
      func main(%x: f32[n, 3, 20]) -> (%y) {
        %e : f32[] = Constant() {value = @e}
        %two : f32[] = Constant() {value = @two}
        %g : f32[20] = Constant() {value = @g}
        %b : f32[20] = Constant() {value = @b}
        %axes : i64[1] = Constant() {value = @a}
        %m : f32[n, 3, 1] = ReduceMean(%x, %axes) {keepdims = 1}
        %d : f32[n, 3, 20] = Sub(%x, %m)
        %p : f32[n, 3, 20] = Pow(%d, %two)
        %v : f32[n, 3, 1] = ReduceMean(%p, %axes) {keepdims = 1}
        %ve : f32[n, 3, 1] = Add(%v, %e)
        %s : f32[n, 3, 1] = Sqrt(%ve)
        %q : f32[n, 3, 20] = Div(%d, %s)
        %h : f32[n, 3, 20] = Mul(%q, %g)
        %y : f32[n, 3, 20] = Add(%h, %b) } })",
     {{5}, {0}, {1}}},
    {"Norms",
     R"(program "p" { symbol n
      constant g : f32[20] = splat 0.5
      constant b : f32[20] = splat 0.5
      func main(%x: f32[n, 4, 20]) -> (%y, %l, %z) {
        %g : f32[20] = Constant() {value = @g}
        %b : f32[20] = Constant() {value = @b}
        %y : f32[n, 4, 20] = LayerNormalization(%x, %g, %b) {axis = -1}
        %l : f32[n, 4, 20] = LogSoftmax(%x) {axis = 1}
        %z : f32[n, 4, 20] = Softmax(%y) {axis = 1} } })",
     {{5}, {0}, {1}}},
    {"Reductions",
     R"(program "p" { symbol n symbol m
      constant a : i64[1] = [1]
      constant ac : i64[2] = [0, 2]
      func main(%x: f32[n, m, 6]) -> (%s, %t, %u, %v) {
        %a : i64[1] = Constant() {value = @a}
        %c : i64[2] = Constant() {value = @ac}
        %s : f32[n, 6] = ReduceSum(%x, %a) {keepdims = 0}
        %t : f32[1, m, 1] = ReduceMax(%x, %c)
        %u : f32[m] = ReduceMean(%x, %c) {keepdims = 0}
        %v : f32[n, 1, 6] = ReduceL2(%x, %a) } })",
     {{5, 4}, {1, 1}, {3, 9}}},
    {"ConvBnRelu",
     R"(program "p" { symbol n symbol h symbol w
      constant k : f32[8, 3, 3, 3] = splat 0.5
      constant p : f32[12, 8, 1, 1] = splat 0.5
      constant v : f32[12] = [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2]
      constant s : f32[1] = [0.7]
      func main(%x: f32[n, 3, h, w]) -> (%y) {
        %k : f32[8, 3, 3, 3] = Constant() {value = @k}
        %p : f32[12, 8, 1, 1] = Constant() {value = @p}
        %v : f32[12] = Constant() {value = @v}
        %s : f32[1] = Constant() {value = @s}
        %c : f32[*] = Conv(%x, %k) {kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 1]}
        %r : f32[*] = HardSwish(%c)
        %q : f32[*] = Conv(%r, %p) {kernel_shape = [1, 1]}
        %b : f32[*] = BatchNormalization(%q, %v, %v, %v, %v)
        %m : f32[*] = Mul(%s, %b)
        %y : f32[*] = Relu(%m) } })",
     {{2, 6, 5}, {1, 1, 1}, {0, 4, 4}, {1, 9, 13}}},
    {"SqueezeExcite",
     R"(program "p" { symbol n symbol h symbol w
      constant d : f32[20, 1, 5, 5] = splat 0.5
      constant b : f32[20] = splat 0.5
      constant p : f32[6, 20, 1, 1] = splat 0.5
      constant q : f32[20, 6, 1, 1] = splat 0.5
      func main(%x: f32[n, 20, h, w]) -> (%y) {
        %d : f32[20, 1, 5, 5] = Constant() {value = @d}
        %b : f32[20] = Constant() {value = @b}
        %p : f32[6, 20, 1, 1] = Constant() {value = @p}
        %q : f32[20, 6, 1, 1] = Constant() {value = @q}
        %c : f32[*] = Conv(%x, %d, %b) {group = 20, kernel_shape = [5, 5], pads = [2, 2, 2, 2], strides = [2, 1]}
        %r : f32[*] = Relu(%c)
        %g : f32[*] = GlobalAveragePool(%r)
        %s : f32[*] = Conv(%g, %p) {kernel_shape = [1, 1]}
        %t : f32[*] = Relu(%s)
        %u : f32[*] = Conv(%t, %q) {kernel_shape = [1, 1]}
        %v : f32[*] = HardSigmoid(%u)
        %m : f32[*] = Mul(%r, %v)
        %y : f32[*] = Add(%m, %r) } })",
     {{2, 6, 5}, {1, 1, 1}, {1, 9, 13}}},
    {"GroupsAndResidual",
     R"(program "p" { symbol n symbol w
      constant k : f32[8, 2, 3] = splat 0.5
      func main(%x: f32[n, 8, w]) -> (%y) {
        %k : f32[8, 2, 3] = Constant() {value = @k}
        %c : f32[*] = Conv(%x, %k) {group = 4, kernel_shape = [3], pads = [1, 1]}
        %y : f32[*] = Add(%c, %x) } })",
     {{2, 6}, {1, 1}, {0, 4}, {1, 13}}},
    {"Pools",
     R"(program "p" { symbol n symbol h symbol w
      func main(%x: f32[n, 5, h, w]) -> (%y, %z) {
        %m : f32[*] = MaxPool(%x) {kernel_shape = [3, 2], pads = [1, 0, 1, 1], strides = [2, 1]}
        %y : f32[*] = Relu(%m)
        %z : f32[*] = AveragePool(%x) {kernel_shape = [3, 2], strides = [3, 2]} } })",
     {{2, 6, 5}, {1, 3, 2}, {0, 4, 4}, {1, 9, 13}}},
    {"ConcatSlicePad",
     R"(program "p" { symbol n symbol m
      constant st : i64[2] = [1, -4]
      constant en : i64[2] = [9223372036854775807, -1]
      constant ax : i64[2] = [0, 1]
      constant sp : i64[2] = [2, 1]
      constant pd : i64[4] = [1, 0, 2, 1]
      func main(%x: f32[n, 6], %z: f32[m, 6]) -> (%y, %q) {
        %st : i64[2] = Constant() {value = @st}
        %en : i64[2] = Constant() {value = @en}
        %ax : i64[2] = Constant() {value = @ax}
        %sp : i64[2] = Constant() {value = @sp}
        %pd : i64[4] = Constant() {value = @pd}
        %c : f32[*] = Concat(%x, %z, %x) {axis = 0}
        %s : f32[*] = Slice(%c, %st, %en, %ax, %sp)
        %y : f32[*] = Neg(%s)
        %q : f32[*] = Pad(%s, %pd) } })",
     {{2, 3}, {0, 0}, {1, 0}, {0, 1}, {4, 7}}},
    {"ShapeAsData",
     R"(program "p" { symbol n
      func main(%x: f32[n, 6]) -> (%y, %s) {
        %y : f32[n, 6] = Relu(%x)
        %s : i64[2] = Shape(%x) } })",
     {{2}, {0}}},
    {"OutputsAreInputsAndViews",
     R"(program "p" { symbol n
      func main(%x: f32[n, 6]) -> (%t, %x, %r, %r) {
        %t : f32[6, n] = Transpose(%x) {perm = [1, 0]}
        %r : f32[n, 6] = Abs(%x) } })",
     {{2}, {0}, {1}}},
    {"DepthToSpace",
     R"(program "p" { symbol n symbol h
      func main(%x: f32[n, 12, h, 3]) -> (%y, %z) {
        %y : f32[*] = DepthToSpace(%x) {blocksize = 2, mode = "CRD"}
        %z : f32[*] = DepthToSpace(%x) {blocksize = 2} } })",
     {{2, 3}, {1, 1}, {0, 2}}},
    {"Upsample",
     R"(program "p" { symbol n symbol h
      constant k : f32[8, 3, 1, 1] = splat 0.5
      constant t : f32[8, 4, 2, 2] = splat 0.5
      constant b : f32[4] = splat 0.5
      constant s : f32[4] = [1, 1, 2, 3]
      func main(%x: f32[n, 3, h, 5]) -> (%y, %z) {
        %k : f32[8, 3, 1, 1] = Constant() {value = @k}
        %t : f32[8, 4, 2, 2] = Constant() {value = @t}
        %b : f32[4] = Constant() {value = @b}
        %s : f32[4] = Constant() {value = @s}
        %c : f32[*] = Conv(%x, %k)
        %u : f32[*] = Resize(%c, _, %s) {mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"}
        %y : f32[*] = Relu(%u)
        %v : f32[*] = ConvTranspose(%c, %t, %b) {strides = [2, 2]}
        %z : f32[*] = Relu(%v) } })",
     {{2, 3}, {1, 1}, {0, 2}}},
    {"UpsampleOfOperatorSet10",
     R"(program "p" { symbol n symbol h
      constant s : f32[4] = [1, 1, 2, 3]
      func main(%x: f32[n, 3, h, 5]) -> (%y) {
        %s : f32[4] = Constant() {value = @s}
        %u : f32[*] = Resize(%x, _, %s) {mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "ceil_when_shrinking"}
        %y : f32[*] = Relu(%u) } })",
     {{2, 3}, {1, 1}, {0, 2}}},
    {"TransposedWithoutStride",
     R"(program "p" { symbol n symbol h
      constant t : f32[4, 3, 2, 3] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8,
        1.9, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 2.8, 2.9, 3.0, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6,
        3.7, 3.8, 3.9, 4.0, 4.1, 4.2, 4.3, 4.4, 4.5, 4.6, 4.7, 4.8, 4.9, 5.0, 5.1, 5.2, 5.3, 5.4,
        5.5, 5.6, 5.7, 5.8, 5.9, 6.0, 6.1, 6.2, 6.3, 6.4, 6.5, 6.6, 6.7, 6.8, 6.9, 7.0, 7.1, 7.2]
      constant b : f32[6] = [1, 2, 3, 4, 5, 6]
      func main(%x: f32[n, 4, h, 5]) -> (%y) {
        %t : f32[4, 3, 2, 3] = Constant() {value = @t}
        %b : f32[6] = Constant() {value = @b}
        %v : f32[*] = ConvTranspose(%x, %t, %b) {group = 2, dilations = [3, 1], pads = [3, 1, 0, 2]}
        %y : f32[*] = Relu(%v) } })",
     {{2, 3}, {1, 7}, {3, 1}}},
    {"TransposedConvolutions",
     R"(program "p" { symbol n symbol h
      constant s : f32[4, 5, 3, 3] = splat 0.5
      constant d : f32[4, 1, 3, 2] = splat 0.5
      constant g : f32[4, 3, 2, 5] = splat 0.5
      constant f : f32[4, 6, 4, 4] = splat 0.5
      constant b : f32[6] = splat 0.5
      func main(%x: f32[n, 4, h, 5]) -> (%p, %q, %r, %t, %u) {
        %s : f32[4, 5, 3, 3] = Constant() {value = @s}
        %d : f32[4, 1, 3, 2] = Constant() {value = @d}
        %g : f32[4, 3, 2, 5] = Constant() {value = @g}
        %f : f32[4, 6, 4, 4] = Constant() {value = @f}
        %b : f32[6] = Constant() {value = @b}
        %p : f32[*] = ConvTranspose(%x, %s) {pads = [1, 0, 1, 2]}
        %q : f32[*] = ConvTranspose(%x, %d) {group = 4, dilations = [2, 1], pads = [2, 0, 1, 1]}
        %r : f32[*] = ConvTranspose(%x, %g, %b) {group = 2, strides = [1, 2], pads = [0, 2, 0, 2]}
        %e : f32[*] = ConvTranspose(%x, %f, %b) {strides = [2, 2], pads = [1, 1, 1, 1]}
        %t : f32[*] = Relu(%e)
        %u : f32[*] = ConvTranspose(%x, %g) {group = 2, strides = [3, 3], output_padding = [1, 2]} } })",
     {{2, 3}, {1, 1}, {0, 2}, {1, 7}}},
    {"TransposedConvolutionOfRows",
     R"(program "p" { symbol n symbol w
      constant f : f32[4, 6, 8] = splat 0.5
      func main(%x: f32[n, 4, w]) -> (%y) {
        %f : f32[4, 6, 8] = Constant() {value = @f}
        %y : f32[*] = ConvTranspose(%x, %f) {strides = [4], pads = [2, 2]} } })",
     {{2, 3}, {1, 1}, {0, 2}, {1, 7}}},
};

INSTANTIATE_TEST_SUITE_P(Programs, LowerSegmentTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Six elements of three by a scale of 2.1, and four of four by 1.2: multiples that whole factors would give too.
TEST(LowerSegment, ScalesThatAreNotWholeAreNotRepetitions) {
  for (const char* rule : {R"(coordinate_transformation_mode = "asymmetric", nearest_mode = "floor")",
                           R"(coordinate_transformation_mode = "asymmetric", nearest_mode = "ceil_when_shrinking")",
                           R"(coordinate_transformation_mode = "half_pixel")"}) {
    const Segment segment = SegmentOf(std::string(R"(program "p" { symbol n
      constant s : f32[3] = [1, 2.1, 1.2]
      func main(%x: f32[n, 3, 4]) -> (%y) {
        %s : f32[3] = Constant() {value = @s}
        %u : f32[n, 6, 4] = Resize(%x, _, %s) {mode = "nearest", )") +
                                      rule + R"(}
        %y : f32[n, 6, 4] = Relu(%u) } })");
    CheckSegment(segment, {.shapes = {{1}, {3}}});
  }
}

TEST(LowerSegment, EqualLayersShareOneKernel) {
  const Segment segment = SegmentOf(R"(program "p" { symbol n
      constant w : f32[32, 32] = splat 0.5
      constant v : f32[32, 32] = splat 0.25
      func main(%x: f32[n, 32]) -> (%y) {
        %w : f32[32, 32] = Constant() {value = @w}
        %v : f32[32, 32] = Constant() {value = @v}
        %a : f32[n, 32] = MatMul(%x, %w)
        %b : f32[n, 32] = Relu(%a)
        %c : f32[n, 32] = MatMul(%b, %v)
        %y : f32[n, 32] = Relu(%c) } })");
  const lower::LoweredSegment lowered = CheckSegment(segment, {.shapes = {{9}, {1}}});
  EXPECT_EQ(lowered.plan.steps.size(), 2u) << Describe(lowered);
  EXPECT_EQ(lowered.specs.size(), 1u) << Describe(lowered);
}

// A plan is valid only for calls in which the sizes that the segment states are true: others are the interpreter's to
// refuse.
TEST(LowerSegment, StatedSizesThatNothingProvesArePartOfTheGuard) {
  const Result<Program> program = ParseProgram(R"(program "p" { symbol n symbol m
      func main(%x: f32[n, 8], %z: f32[m, 8]) -> (%y) {
        %a : f32[m, 8] = Relu(%x)
        %y : f32[m, 8] = Add(%a, %z) } })");
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  const Segment segment = CanonicalSegment(*program, FindSegments(*program).at(0)).value();
  ASSERT_EQ(segment.symbols.size(), 2u);
  const lower::LowerRequest request{segment, Target::kX86V3, NumericMode::kDefault, {5, 5}, {}};
  const Result<lower::LoweredSegment> lowered = LowerSegment(request);
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  const auto& constraints = lowered->plan.guard.constraints;
  EXPECT_TRUE(std::ranges::any_of(constraints, [](const Constraint& c) { return c.kind == ConstraintKind::kEqual; }));
  const Result<lower::LoweredSegment> refused =
      lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, {5, 1}, {}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kShapeMismatch);
}

// What a symbol may be that only the inside of the segment shows.
TEST(LowerSegment, BoundsOfSymbolsShownInsideArePartOfTheGuard) {
  const Result<Program> program = ParseProgram(R"(program "p" { symbol n symbol m in [2, 8] divisor 2
      func main(%x: f32[n]) -> (%y) {
        %u : f32[m] = Relu(%x)
        %y : f32[1] = ReduceSum(%u) } })");
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  const Segment segment = CanonicalSegment(*program, FindSegments(*program).at(0)).value();
  ASSERT_EQ(segment.symbols.size(), 2u);
  const Result<lower::LoweredSegment> lowered =
      lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, {4, 4}, {}});
  ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
  const auto holds = [&](int64_t n) {
    const Plan& plan = lowered->plan;
    return std::ranges::all_of(plan.guard.constraints, [&](const Constraint& c) {
      const std::vector<int64_t> values(plan.symbols.symbol_count(), n);
      return Holds(c.kind, plan.symbols.Evaluate(c.left, values).value(),
                   plan.symbols.Evaluate(c.right, values).value());
    });
  };
  for (int64_t n : {2, 4, 8}) EXPECT_TRUE(holds(n)) << n;
  for (int64_t n : {0, 1, 3, 9, 10}) EXPECT_FALSE(holds(n)) << n;
}

TEST(LowerSegment, ExactPlansReuseTheGenericPlansKernels) {
  const Segment segment = SegmentOf(kCases[5].text);
  const lower::LowerRequest generic{segment, Target::kX86V4, NumericMode::kDefault, {100}, {}};
  const lower::LowerRequest exact{
      segment, Target::kX86V4, NumericMode::kDefault, {100}, {{lower::SymbolChoice::Kind::kExact, 100, 100, 1}}};
  const Result<lower::LoweredSegment> a = LowerSegment(generic), b = LowerSegment(exact);
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(a->specs, b->specs);
}

}  // namespace
}  // namespace kiln::testing
