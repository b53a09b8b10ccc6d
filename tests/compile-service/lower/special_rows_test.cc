// Fused forms, and random programs, on special values: rows longer than vectors, products, windows, what passes
// rewrite.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "common/bytecode/program_text.h"
#include "tests/compile-service/lower/special_check.h"
#include "tests/support/random_program.h"

namespace kiln::testing {
namespace {

uint64_t BaseSeed() {
  const char* seed = std::getenv("KILN_TEST_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

// A program of `inputs`, one symbol n, and `body`, which names its result %y; %c0, %c1… are f32 scalars.
struct Form {
  const char* name;
  const char* inputs;
  std::vector<const char*> scalars;
  const char* body;
  std::vector<int64_t> sizes;  // of n
  Magnitudes magnitudes = Magnitudes::kOrdinary;
  bool elementwise = false;
  std::vector<const char*> weights = {};  // "w: f32[40, 24]"
  bool plain_weights = false;             // see SpecialCheckOptions::plain
};
std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << form.name;
}

std::string TextOf(const Form& form) {
  std::string constants, nodes;
  for (size_t i = 0; i < form.scalars.size(); ++i) {
    const std::string name = "c" + std::to_string(i);
    constants += "constant " + name + " : f32[] = [" + form.scalars[i] + "]\n";
    nodes += "%" + name + " : f32[] = Constant() {value = @" + name + "}\n";
  }
  for (const std::string weight : form.weights) {
    const size_t colon = weight.find(':');
    const std::string name = weight.substr(0, colon), type = weight.substr(colon);
    constants += "constant " + name + " " + type + " = splat 0.5\n";
    nodes += "%" + name + " " + type + " = Constant() {value = @" + name + "}\n";
  }
  return std::string("program \"p\" { symbol n\n") + constants +
         "constant last : i64[1] = [-1]\nconstant one : i64[] = [1]\nfunc main(" + form.inputs + ") -> (%y) {\n" +
         nodes + "%last : i64[1] = Constant() {value = @last}\n%one : i64[] = Constant() {value = @one}\n" + form.body +
         "} }";
}

constexpr Magnitudes kAll = Magnitudes::kAll;

const Form kForms[] = {
    {"Softmax", "%x: f32[n, 77]", {}, "%y : f32[n, 77] = Softmax(%x) {axis = -1}", {7}},
    {"SoftmaxOfARuntimeLength", "%x: f32[5, n]", {}, "%y : f32[5, n] = Softmax(%x) {axis = -1}", {1, 16, 100}},
    {"SoftmaxAcross", "%x: f32[n, 9, 20]", {}, "%y : f32[n, 9, 20] = Softmax(%x) {axis = 1}", {3}},
    {"LogSoftmax", "%x: f32[n, 77]", {}, "%y : f32[n, 77] = LogSoftmax(%x) {axis = -1}", {7}},
    {"ComposedSoftmax",
     "%x: f32[n, 50]",
     {},
     R"(%m : f32[n, 1] = ReduceMax(%x, %last) {keepdims = 1}
        %d : f32[n, 50] = Sub(%x, %m)
        %e : f32[n, 50] = Exp(%d)
        %s : f32[n, 1] = ReduceSum(%e, %last) {keepdims = 1}
        %y : f32[n, 50] = Div(%e, %s))",
     {6}},
    {"LayerNorm",
     "%x: f32[n, 77], %s: f32[77], %b: f32[77]",
     {},
     "%y : f32[n, 77] = LayerNormalization(%x, %s, %b) {axis = -1, epsilon = 0.001}",
     {7}},
    {"RmsNorm",
     "%x: f32[n, 77], %s: f32[77]",
     {},
     "%y : f32[n, 77] = RMSNormalization(%x, %s) {axis = -1, epsilon = 0.001}",
     {7}},
    {"InstanceNorm",
     "%x: f32[n, 3, 5, 9], %s: f32[3], %b: f32[3]",
     {},
     "%y : f32[n, 3, 5, 9] = InstanceNormalization(%x, %s, %b) {epsilon = 0.001}",
     {2}},
    {"ReduceMax", "%x: f32[n, 77]", {}, "%y : f32[n] = ReduceMax(%x, %last) {keepdims = 0}", {7}, kAll},
    {"ReduceMin", "%x: f32[n, 77]", {}, "%y : f32[n] = ReduceMin(%x, %last) {keepdims = 0}", {7}, kAll},
    {"ReduceMaxOfNothing", "%x: f32[4, n]", {}, "%y : f32[4] = ReduceMax(%x, %last) {keepdims = 0}", {0}, kAll},
    {"ReduceSumOfNothing", "%x: f32[4, n]", {}, "%y : f32[4] = ReduceSum(%x, %last) {keepdims = 0}", {0}},
    {"ReduceMeanOfNothing", "%x: f32[4, n]", {}, "%y : f32[4] = ReduceMean(%x, %last) {keepdims = 0}", {0}},
    {"ReduceProd",
     "%x: f32[n, 20]",
     {},
     "%y : f32[n] = ReduceProd(%x, %last) {keepdims = 0}",
     {7},
     Magnitudes::kNearOne},
    {"ReduceSum", "%x: f32[n, 77]", {}, "%y : f32[n] = ReduceSum(%x, %last) {keepdims = 0}", {7}},
    {"ReduceMean", "%x: f32[n, 77]", {}, "%y : f32[n] = ReduceMean(%x, %last) {keepdims = 0}", {7}},
    {"ReduceL2", "%x: f32[n, 77]", {}, "%y : f32[n] = ReduceL2(%x, %last) {keepdims = 0}", {7}},
    {"ReduceLogSum", "%x: f32[n, 77]", {}, "%y : f32[n] = ReduceLogSum(%x, %last) {keepdims = 0}", {7}},
    {"ArgMax", "%x: f32[n, 77]", {}, "%y : i64[n] = ArgMax(%x) {axis = 1, keepdims = 0}", {7}, kAll},
    {"ArgMinLast",
     "%x: f32[n, 77]",
     {},
     "%y : i64[n] = ArgMin(%x) {axis = 1, keepdims = 0, select_last_index = 1}",
     {7},
     kAll},
    {"CumSum", "%x: f32[n, 30]", {}, "%y : f32[n, 30] = CumSum(%x, %one)", {7}},
    {"Product", "%x: f32[n, 40], %w: f32[40, 24]", {}, "%y : f32[n, 24] = MatMul(%x, %w)", {1, 5, 40}},
    {"ProductWithReluAndBias",
     "%x: f32[n, 40], %w: f32[40, 24], %b: f32[24]",
     {},
     R"(%p : f32[n, 24] = MatMul(%x, %w)
        %s : f32[n, 24] = Add(%p, %b)
        %y : f32[n, 24] = Relu(%s))",
     {1, 9}},
    {"ProductByWeights",
     "%x: f32[n, 40]",
     {},
     R"(%p : f32[n, 24] = MatMul(%x, %w)
        %s : f32[n, 24] = Add(%p, %b)
        %y : f32[n, 24] = Gelu(%s))",
     {1, 9},
     Magnitudes::kOrdinary,
     false,
     {"w: f32[40, 24]", "b: f32[24]"}},
    {"ScaledProduct",
     "%x: f32[n, 40]",
     {},
     R"(%p : f32[n, 24] = MatMul(%x, %w)
        %y : f32[n, 24] = Mul(%p, %s))",
     {1, 9},
     Magnitudes::kOrdinary,
     false,
     {"w: f32[40, 24]", "s: f32[24]"},
     true},
    {"Convolution",
     "%x: f32[n, 4, 9, 11]",
     {},
     "%y : f32[n, 6, 9, 11] = Conv(%x, %w, %b) {pads = [1, 1, 1, 1]}",
     {2},
     Magnitudes::kOrdinary,
     false,
     {"w: f32[6, 4, 3, 3]", "b: f32[6]"},
     true},
    {"ConvolutionOfManyChannels",
     "%x: f32[n, 32, 6, 6]",
     {},
     R"(%c : f32[n, 32, 6, 6] = Conv(%x, %w, %b) {pads = [1, 1, 1, 1]}
        %y : f32[n, 32, 6, 6] = Relu(%c))",
     {1},
     Magnitudes::kOrdinary,
     false,
     {"w: f32[32, 32, 3, 3]", "b: f32[32]"},
     true},
    {"NormalizedConvolution",
     "%x: f32[n, 4, 9, 11]",
     {"0.0", "6.0"},
     R"(%p : f32[n, 6, 9, 11] = Conv(%x, %w) {pads = [1, 1, 1, 1]}
        %q : f32[n, 6, 9, 11] = BatchNormalization(%p, %s, %b, %m, %v)
        %y : f32[n, 6, 9, 11] = Clip(%q, %c0, %c1))",
     {2},
     Magnitudes::kOrdinary,
     false,
     {"w: f32[6, 4, 3, 3]", "s: f32[6]", "b: f32[6]", "m: f32[6]", "v: f32[6]"},
     true},
    {"DepthwiseConvolution",
     "%x: f32[n, 6, 9, 11]",
     {},
     "%y : f32[n, 6, 9, 11] = Conv(%x, %w, %b) {pads = [1, 1, 1, 1], group = 6}",
     {2},
     Magnitudes::kOrdinary,
     false,
     {"w: f32[6, 1, 3, 3]", "b: f32[6]"},
     true},
    {"MaxPool",
     "%x: f32[n, 5, 9, 11]",
     {},
     "%y : f32[n, 5, 9, 11] = MaxPool(%x) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]}",
     {2},
     kAll},
    {"AveragePool",
     "%x: f32[n, 5, 9, 11]",
     {},
     "%y : f32[n, 5, 9, 11] = AveragePool(%x) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]}",
     {2}},
    {"GlobalMaxPool", "%x: f32[n, 5, 9, 11]", {}, "%y : f32[n, 5, 1, 1] = GlobalMaxPool(%x)", {2}, kAll},
    {"AttentionWithAMask",
     "%q: f32[2, n, 16], %k: f32[2, 16, 150], %v: f32[2, 150, 12], %mask: f32[n, 150]",
     {"0.25"},
     R"(%s : f32[2, n, 150] = MatMul(%q, %k)
        %c : f32[2, n, 150] = Mul(%s, %c0)
        %a : f32[2, n, 150] = Add(%c, %mask)
        %p : f32[2, n, 150] = Softmax(%a) {axis = -1}
        %y : f32[2, n, 12] = MatMul(%p, %v))",
     {1, 19}},
    {"AttentionOverMaskedRows",
     "%q: f32[2, n, 16], %k: f32[2, 16, 150], %v: f32[2, 150, 12], %never: bool[n, 150]",
     {"-inf"},
     R"(%s : f32[2, n, 150] = MatMul(%q, %k)
        %a : f32[2, n, 150] = Where(%never, %c0, %s)
        %p : f32[2, n, 150] = Softmax(%a) {axis = -1}
        %y : f32[2, n, 12] = MatMul(%p, %v))",
     {1, 19}},
    {"DividedByADenormal", "%x: f32[n, 40]", {"1e-40"}, "%y : f32[n, 40] = Div(%x, %c0)", {5}, kAll, true},
    {"DividedByTheLargest", "%x: f32[n, 40]", {"3e38"}, "%y : f32[n, 40] = Div(%x, %c0)", {5}, kAll, true},
    {"DividedByInfinity", "%x: f32[n, 40]", {"-inf"}, "%y : f32[n, 40] = Div(%x, %c0)", {5}, kAll, true},
    {"DividedByNaN", "%x: f32[n, 40]", {"nan"}, "%y : f32[n, 40] = Div(%x, %c0)", {5}, kAll, true},
    {"DividedByZero", "%x: f32[n, 40]", {"-0.0"}, "%y : f32[n, 40] = Div(%x, %c0)", {5}, kAll, true},
    {"DividedBySeven", "%x: f32[n, 40]", {"7.0"}, "%y : f32[n, 40] = Div(%x, %c0)", {5}, kAll, true},
    {"DividedByRows", "%x: f32[n, 40], %d: f32[n, 1]", {}, "%y : f32[n, 40] = Div(%x, %d)", {5}, kAll, true},
    {"DividedByColumns", "%x: f32[n, 40], %d: f32[40]", {}, "%y : f32[n, 40] = Div(%x, %d)", {5}, kAll, true},
    {"PowerOfOneHalf", "%x: f32[n, 40]", {"0.5"}, "%y : f32[n, 40] = Pow(%x, %c0)", {5}, kAll, true},
    {"PowerOfMinusOneHalf", "%x: f32[n, 40]", {"-0.5"}, "%y : f32[n, 40] = Pow(%x, %c0)", {5}, kAll, true},
    {"PowerOfOne", "%x: f32[n, 40]", {"1.0"}, "%y : f32[n, 40] = Pow(%x, %c0)", {5}, kAll, true},
    {"PowerOfTwo", "%x: f32[n, 40]", {"2.0"}, "%y : f32[n, 40] = Pow(%x, %c0)", {5}, kAll, true},
    {"PowerOfThree", "%x: f32[n, 40]", {"3.0"}, "%y : f32[n, 40] = Pow(%x, %c0)", {5}, kAll, true},
    {"PowerOfMinusOne", "%x: f32[n, 40]", {"-1.0"}, "%y : f32[n, 40] = Pow(%x, %c0)", {5}, kAll, true},
    {"PowerOfZero", "%x: f32[n, 40]", {"0.0"}, "%y : f32[n, 40] = Pow(%x, %c0)", {5}, kAll, true},
    {"PowerOfMinusTwo", "%x: f32[n, 40]", {"-2.0"}, "%y : f32[n, 40] = Pow(%x, %c0)", {5}, kAll, true},
    {"PowersOfRows", "%x: f32[n, 40], %e: f32[40]", {}, "%y : f32[n, 40] = Pow(%x, %e)", {5}, kAll, true},
    {"BaseOfTwo", "%x: f32[n, 40]", {"2.0"}, "%y : f32[n, 40] = Pow(%c0, %x)", {5}, kAll, true},
    {"ClippedToSix", "%x: f32[n, 40]", {"0.0", "6.0"}, "%y : f32[n, 40] = Clip(%x, %c0, %c1)", {5}, kAll, true},
    {"ClippedByNaN", "%x: f32[n, 40]", {"nan", "6.0"}, "%y : f32[n, 40] = Clip(%x, %c0, %c1)", {5}, kAll, true},
    {"ClippedBelowAboveNaN", "%x: f32[n, 40]", {"0.0", "nan"}, "%y : f32[n, 40] = Clip(%x, %c0, %c1)", {5}, kAll, true},
    {"ClippedTheWrongWay", "%x: f32[n, 40]", {"2.0", "-2.0"}, "%y : f32[n, 40] = Clip(%x, %c0, %c1)", {5}, kAll, true},
    {"ClippedByInputs",
     "%x: f32[n, 40], %l: f32[], %h: f32[]",
     {},
     "%y : f32[n, 40] = Clip(%x, %l, %h)",
     {5},
     kAll,
     true},
    {"LargestOfZeroAnd", "%x: f32[n, 40]", {"0.0"}, "%y : f32[n, 40] = Max(%c0, %x)", {5}, kAll, true},
    {"LargestOfAndMinusZero", "%x: f32[n, 40]", {"-0.0"}, "%y : f32[n, 40] = Max(%x, %c0)", {5}, kAll, true},
    {"LeastOfNaNAnd", "%x: f32[n, 40]", {"nan"}, "%y : f32[n, 40] = Min(%c0, %x)", {5}, kAll, true},
    {"LargestOfThree",
     "%x: f32[n, 40], %z: f32[40], %u: f32[n, 1]",
     {},
     "%y : f32[n, 40] = Max(%x, %z, %u)",
     {5},
     kAll,
     true},
    {"TimesOne", "%x: f32[n, 40]", {"1.0"}, "%y : f32[n, 40] = Mul(%x, %c0)", {5}, kAll, true},
    {"TimesZero", "%x: f32[n, 40]", {"0.0"}, "%y : f32[n, 40] = Mul(%x, %c0)", {5}, kAll, true},
    {"PlusZero", "%x: f32[n, 40]", {"0.0"}, "%y : f32[n, 40] = Add(%x, %c0)", {5}, kAll, true},
    {"Swish",
     "%x: f32[n, 40]",
     {},
     R"(%s : f32[n, 40] = Sigmoid(%x)
        %y : f32[n, 40] = Mul(%x, %s))",
     {5},
     kAll,
     true},
    {"NaNsReplaced",
     "%x: f32[n, 40]",
     {"0.0"},
     R"(%is : bool[n, 40] = IsNaN(%x)
        %y : f32[n, 40] = Where(%is, %c0, %x))",
     {5},
     kAll,
     true},
    {"HalvesAndBack",
     "%x: f32[n, 40]",
     {},
     R"(%h : f16[n, 40] = Cast(%x) {to = 10}
        %y : f32[n, 40] = Cast(%h) {to = 1})",
     {5},
     kAll,
     true},
    {"IntegersAndBack",
     "%x: f32[n, 40]",
     {},
     R"(%h : i32[n, 40] = Cast(%x) {to = 6}
        %y : f32[n, 40] = Cast(%h) {to = 1})",
     {5},
     kAll,
     true},
    {"LongIntegersAndBack",
     "%x: f32[n, 40]",
     {},
     R"(%h : i64[n, 40] = Cast(%x) {to = 7}
        %y : f32[n, 40] = Cast(%h) {to = 1})",
     {5},
     kAll,
     true},
    {"Bytes",
     "%x: f32[n, 40], %s: f32[]",
     {},
     R"(%q : u8[n, 40] = QuantizeLinear(%x, %s)
        %y : f32[n, 40] = DequantizeLinear(%q, %s))",
     {5},
     kAll,
     true},
    {"Differences",
     "%x: f32[n, 40], %z: f32[40]",
     {},
     R"(%l : bool[n, 40] = Less(%x, %z)
        %e : bool[n, 40] = Equal(%x, %z)
        %o : bool[n, 40] = Or(%l, %e)
        %y : f32[n, 40] = Where(%o, %z, %x))",
     {5},
     kAll,
     true},
};

// The forms of weights that plans of the segment can have.
std::vector<WeightForm> FormsOf(const Segment& segment) {
  if (segment.weight_count() == 0) return {WeightForm::kPacked};
  return {WeightForm::kPacked, WeightForm::kAsGiven};
}

class SpecialFormsTest : public ::testing::TestWithParam<Form> {};

TEST_P(SpecialFormsTest, PlansGiveWhatTheInterpreterGives) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  const Form& form = GetParam();
  const Segment segment = SegmentOf(TextOf(form));
  ASSERT_FALSE(segment.body.functions.empty());
  SCOPED_TRACE(PrintProgram(segment.body));
  for (Target target : {HostTargets().front(), HostTargets().back()}) {
    CompiledRunner runner(target);
    for (NumericMode mode : {NumericMode::kDefault, NumericMode::kStrict, NumericMode::kFast}) {
      for (size_t i = 0; i < form.sizes.size() * FormsOf(segment).size(); ++i) {
        SpecialCheckOptions options{.target = target, .mode = mode, .seed = BaseSeed()};
        options.form = FormsOf(segment)[i / form.sizes.size()];
        options.symbols = {form.sizes[i % form.sizes.size()]};
        options.magnitudes = form.magnitudes;
        options.elementwise = form.elementwise;
        for (ValueId input : segment.body.entry().regions[0].inputs) {
          const TensorDesc& desc = segment.body.entry().values[static_cast<size_t>(input)].desc;
          options.inputs.push_back(
              Tensor::Zeros(desc.dtype, ConcreteDims(desc, segment.body.symbols, options.symbols)));
          options.filled.push_back(true);
          options.plain.push_back(form.plain_weights &&
                                  options.filled.size() > static_cast<size_t>(segment.runtime_inputs));
        }
        const SpecialOutcome outcome = CheckSpecials(segment, options, runner);
        ASSERT_NE(outcome, SpecialOutcome::kNoKernel);
        if (outcome == SpecialOutcome::kFailed) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, SpecialFormsTest, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

// In default mode denormal weights of products count as the smallest normal numbers of their sign; numeric_modes.def.
TEST(DenormalWeights, CountAsTheSmallestNormalNumbersAtMostInDefaultMode) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  const Segment segment = SegmentOf(
      R"(program "p" {
        constant w : f32[40, 24] = splat 0.5
        func main(%x: f32[3, 40]) -> (%y) {
          %w : f32[40, 24] = Constant() {value = @w}
          %y : f32[3, 24] = MatMul(%x, %w) } })");
  const Target target = HostTargets().front();
  constexpr float kSmallestNormal = 0x1p-126f;
  struct {
    float weight, input;
  } const kCases[] = {{1e-40f, 1e30f}, {1e-40f, 1e38f}, {-1e-45f, 1e38f}, {-1e-40f, -1.0f}};
  for (const auto& [weight, input] : kCases) {
    for (NumericMode mode : {NumericMode::kStrict, NumericMode::kDefault, NumericMode::kFast}) {
      std::vector<float> x(3 * 40, 0.0f), w(40 * 24, weight);
      x[1] = input;  // one product per result: nothing is rounded away
      const Tensor inputs = Tensor::Of<float>(DType::kF32, Dims{3, 40}, x);
      const Tensor weights = Tensor::Of<float>(DType::kF32, Dims{40, 24}, w);
      const Result<lower::LoweredSegment> lowered = lower::LowerSegment({segment, target, mode, {}, {}});
      ASSERT_TRUE(lowered.has_value()) << ToString(lowered.error());
      CompiledRunner runner(target);
      const std::vector<TensorRef> input_refs = {inputs.ref}, weight_refs = {weights.ref};
      const auto got = RunLowered(*lowered, {}, input_refs, weight_refs, InfoOf(target).f32_lanes(), runner.runner());
      ASSERT_TRUE(got.has_value()) << ToString(got.error());
      const float exact = weight * input, result = (*got)[0].ref.as<float>()[0];
      const float off = std::abs(result - exact), unit = std::abs(exact) * 0x1p-20f + 0x1p-148f;
      if (mode == NumericMode::kStrict) {
        EXPECT_LE(off, unit) << weight << " * " << input;
      } else if (mode == NumericMode::kDefault) {
        EXPECT_LE(off, kSmallestNormal * std::abs(input) + unit) << weight << " * " << input;
        EXPECT_EQ(std::signbit(result), std::signbit(exact)) << weight << " * " << input;
      }
    }
  }
  // Below this magnitude of inputs nothing of it is seen in a sum of 4096 products: less than the mode's floor allows.
  const Tolerance most = ToleranceOf(NumericMode::kDefault);
  EXPECT_LT(4096 * 0x1p-126 * 0x1p80, 4 * 4 * 0x1p-24 * most.atol / most.rtol);
}

// --- random programs ---

class SpecialProgramsTest : public ::testing::TestWithParam<int> {};

TEST_P(SpecialProgramsTest, PlansGiveWhatTheInterpreterGives) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  const Target target = GetParam() % 2 == 0 ? HostTargets().front() : HostTargets().back();
  CompiledRunner runner(target);
  int compared = 0;
  for (int i = 0; i < 12; ++i) {
    const uint64_t seed = BaseSeed() * 1000 + static_cast<uint64_t>(700 + GetParam() * 12 + i);
    const Program program = RandomProgram(seed, {.nodes = 8, .odd_names = false, .only_f32 = i % 2 == 0});
    for (const SegmentSite& site : FindSegments(program)) {
      const Result<Segment> segment = CanonicalSegment(program, site);
      ASSERT_TRUE(segment.has_value()) << ToString(segment.error());
      if (segment->parameters > 0) continue;  // values of parameters are the model's to say
      SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + PrintProgram(segment->body));
      SpecialCheckOptions options{.target = target, .mode = NumericMode::kDefault};
      options.symbols = SymbolValuesNear(segment->body, 5);
      for (size_t s = 0; s < segment->symbols.size(); ++s)
        if (segment->symbols[s].kind == SymbolSource::Kind::kValueDim) options.symbols[s] = -1;
      options.rounds = 16;
      options.seed = seed;
      options.magnitudes = Magnitudes::kOrdinary;
      for (ValueId input : segment->body.entry().regions[0].inputs) {
        const TensorDesc& desc = segment->body.entry().values[static_cast<size_t>(input)].desc;
        options.inputs.push_back(Tensor::Zeros(desc.dtype, ConcreteDims(desc, segment->body.symbols, options.symbols)));
        options.filled.push_back(IsFloat(desc.dtype) || desc.dtype == DType::kBool);  // integers may be indices
      }
      const SpecialOutcome outcome = CheckSpecials(*segment, options, runner);
      compared += outcome == SpecialOutcome::kCompared;
      if (outcome == SpecialOutcome::kFailed) return;
    }
  }
  EXPECT_GT(compared, 3);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SpecialProgramsTest, ::testing::Range(0, 6));

}  // namespace
}  // namespace kiln::testing
