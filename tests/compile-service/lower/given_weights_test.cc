// Plans that read weights as the model holds them: nothing is packed, the interpreter's answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

// A node of %x and weights, by their types.
struct Layer {
  const char* name;
  std::string x;
  std::vector<std::string> weights;  // %w0, %w1…: of more than 16 elements, else they are immediates
  std::string nodes;                 // defines %y
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::string> reference = {};  // ops that are reference steps where weights are not packed
};
std::ostream& operator<<(std::ostream& out, const Layer& layer) {
  return out << layer.name;
}

std::string TextOf(const Layer& layer) {
  std::string symbols, constants, nodes;
  for (const char* symbol : {"n", "h", "w"})
    if (layer.x.find(symbol) != std::string::npos) symbols += std::string(" symbol ") + symbol + "\n";
  for (size_t i = 0; i < layer.weights.size(); ++i) {
    const std::string name = "w" + std::to_string(i);
    constants += " constant " + name + " : " + layer.weights[i] + " = splat 0.5\n";
    nodes += " %" + name + " : " + layer.weights[i] + " = Constant() {value = @" + name + "}\n";
  }
  return "program \"p\" {" + symbols + constants + " func main(%x: " + layer.x + ") -> (%y) {\n" + nodes + layer.nodes +
         " } }";
}

const Layer kLayers[] = {
    {"Product", "f32[n, 40]", {"f32[40, 24]"}, "%y : f32[*] = MatMul(%x, %w0)", {{7}, {1}, {40}, {0}}},
    {"ProductOfBatches", "f32[3, n, 20]", {"f32[3, 20, 33]"}, "%y : f32[*] = MatMul(%x, %w0)", {{5}, {1}}},
    {"Gemm",
     "f32[n, 30]",
     {"f32[50, 30]", "f32[50]"},
     "%y : f32[*] = Gemm(%x, %w0, %w1) {transB = 1, alpha = 0.5, beta = 2.0}",
     {{9}, {1}, {3}}},
    {"ScaledProduct",
     "f32[n, 40]",
     {"f32[40, 24]", "f32[24]", "f32[24]"},
     "%p : f32[*] = MatMul(%x, %w0)\n%s : f32[*] = Mul(%p, %w1)\n%t : f32[*] = Add(%s, %w2)\n%y : f32[*] = Relu(%t)",
     {{7}, {1}}},
    {"Pointwise",
     "f32[n, 18, h, w]",
     {"f32[37, 18, 1, 1]", "f32[37]"},
     "%y : f32[*] = Conv(%x, %w0, %w1)",
     {{2, 5, 6}, {1, 1, 1}, {1, 2, 1}}},
    {"Convolution",
     "f32[n, 5, h, w]",
     {"f32[20, 5, 3, 3]", "f32[20]"},
     "%c : f32[*] = Conv(%x, %w0, %w1) {pads = [1, 1, 1, 1], strides = [2, 1]}\n%y : f32[*] = Relu(%c)",
     {{2, 7, 9}, {1, 1, 1}, {1, 12, 30}}},
    {"ConvolutionWithoutPads",
     "f32[n, 16, h, w]",
     {"f32[24, 16, 3, 3]"},
     "%y : f32[*] = Conv(%x, %w0) {dilations = [1, 2]}",
     {{2, 7, 9}, {1, 3, 5}}},
    {"Groups",
     "f32[n, 12, h, w]",
     {"f32[18, 4, 3, 2]"},
     "%y : f32[*] = Conv(%x, %w0) {group = 3, pads = [1, 0, 1, 1]}",
     {{2, 6, 5}, {1, 2, 2}}},
    {"PointwiseStrided",
     "f32[n, 18, h, w]",
     {"f32[10, 18, 1, 1]"},
     "%y : f32[*] = Conv(%x, %w0) {strides = [2, 2]}",
     {{2, 5, 6}, {1, 1, 1}}},
    {"Depthwise",
     "f32[n, 19, h, w]",
     {"f32[19, 1, 3, 3]", "f32[19]"},
     "%y : f32[*] = Conv(%x, %w0, %w1) {group = 19, pads = [1, 1, 1, 1]}",
     {{2, 6, 5}, {1, 1, 1}}},
    {"Line", "f32[n, 8, w]", {"f32[12, 8, 5]"}, "%y : f32[*] = Conv(%x, %w0) {pads = [2, 2]}", {{2, 30}, {1, 1}}},
    {"Normalised",
     "f32[n, 6, h, w]",
     {"f32[20, 6, 3, 3]", "f32[20]", "f32[20]", "f32[20]", "f32[20]"},
     "%a : f32[*] = Abs(%w4)\n%c : f32[*] = Conv(%x, %w0) {pads = [1, 1, 1, 1]}\n"
     "%b : f32[*] = BatchNormalization(%c, %w1, %w2, %w3, %a) {epsilon = 0.5}\n%y : f32[*] = Relu(%b)",
     {{2, 6, 5}, {1, 1, 1}}},
    {"LayerNorm",
     "f32[n, 40]",
     {"f32[40]", "f32[40]"},
     "%y : f32[*] = LayerNormalization(%x, %w0, %w1) {axis = -1}",
     {{7}, {1}}},
    {"Lookup", "i64[n]", {"f32[30, 24]"}, "%y : f32[*] = Gather(%w0, %x)", {{7}, {1}}, {}},
    {"Lstm",
     "f32[6, n, 9]",
     {"f32[1, 28, 9]", "f32[1, 28, 7]", "f32[1, 56]"},
     "%y : f32[*] = LSTM(%x, %w0, %w1, %w2) {hidden_size = 7}",
     {{3}, {1}},
     {"LSTM"}},
    {"Gru",
     "f32[6, n, 9]",
     {"f32[1, 21, 9]", "f32[1, 21, 7]"},
     "%y : f32[*] = GRU(%x, %w0, %w1) {hidden_size = 7}",
     {{3}, {1}},
     {"GRU"}},
    {"Transposed",
     "f32[n, 6, h, w]",
     {"f32[6, 5, 3, 3]"},
     "%y : f32[*] = ConvTranspose(%x, %w0) {strides = [2, 2]}",
     {{2, 4, 5}, {1, 1, 1}},
     {"ConvTranspose"}},
};

// The ops of reference steps, but for checks.
std::vector<std::string> ReferenceOps(const Plan& plan) {
  std::vector<std::string> ops;
  for (const PlanStep& step : plan.steps)
    if (const auto* node = std::get_if<ReferenceStep>(&step.step); node && node->op != TensorOp::kCheckIndices)
      ops.emplace_back(OpInfo(node->op).name);
  return ops;
}

class GivenWeightsTest : public ::testing::TestWithParam<Layer> {};

TEST_P(GivenWeightsTest, NothingIsPackedAndPlansGiveWhatTheInterpreterGives) {
  const Segment segment = SegmentOf(TextOf(GetParam()));
  ASSERT_EQ(static_cast<size_t>(segment.weight_count()), GetParam().weights.size());
  const lower::LoweredSegment given =
      CheckSegment(segment, {.shapes = GetParam().shapes, .form = WeightForm::kAsGiven});
  EXPECT_EQ(given.plan.weights, WeightForm::kAsGiven);
  EXPECT_FALSE(given.plan.PacksWeights()) << Describe(given);
  EXPECT_EQ(ReferenceOps(given.plan), GetParam().reference) << Describe(given);
  const lower::LoweredSegment packed = CheckSegment(segment, {.shapes = GetParam().shapes});
  EXPECT_EQ(packed.plan.weights, WeightForm::kPacked);
  EXPECT_EQ(ReferenceOps(packed.plan), std::vector<std::string>{}) << Describe(packed);
  EXPECT_NE(ComputePlanKey(given.plan), ComputePlanKey(packed.plan));
}

TEST_P(GivenWeightsTest, CompiledPlansGiveWhatTheInterpreterGivesInEveryMode) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  const Segment segment = SegmentOf(TextOf(GetParam()));
  for (Target target : {HostTargets().front(), HostTargets().back()}) {
    CompiledRunner compiled(target);
    for (NumericMode mode : {NumericMode::kDefault, NumericMode::kStrict})
      CheckSegment(segment, {.shapes = GetParam().shapes,
                             .targets = {target},
                             .mode = mode,
                             .form = WeightForm::kAsGiven,
                             .runner = [&](Target) { return compiled.runner(); }});
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, GivenWeightsTest, ::testing::ValuesIn(kLayers),
                         [](const auto& info) { return std::string(info.param.name); });

// Sizes by chance, around vectors and tiles.
class RandomLayers {
 public:
  explicit RandomLayers(uint64_t seed) : random_(seed) {}
  Layer Next() {
    switch (Pick(0, 4)) {
      case 0:
        return Product();
      case 1:
        return Gemm();
      case 2:
        return Depthwise();
      case 3:
        return Lstm();
      default:
        return Convolution();
    }
  }

 private:
  int64_t Pick(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  static std::string List(std::initializer_list<int64_t> values) {
    std::string text;
    for (int64_t value : values) text += (text.empty() ? "[" : ", ") + std::to_string(value);
    return text + "]";
  }
  static std::string F32(std::initializer_list<int64_t> dims) { return "f32" + List(dims); }

  Layer Product() {
    const int64_t k = Pick(1, 70), n = Pick(17, 100);
    return {"product",
            "f32[n, " + std::to_string(k) + "]",
            {F32({k, n}), F32({n})},
            "%p : f32[*] = MatMul(%x, %w0)\n%y : f32[*] = Add(%p, %w1)",
            {{Pick(1, 40)}, {Pick(1, 4)}}};
  }
  Layer Gemm() {
    const int64_t k = Pick(1, 70), n = Pick(17, 100);
    return {"gemm",
            "f32[n, " + std::to_string(k) + "]",
            {F32({n, k}), F32({n})},
            "%y : f32[*] = Gemm(%x, %w0, %w1) {transB = 1, alpha = 0.25}",
            {{Pick(1, 40)}, {Pick(1, 4)}}};
  }
  std::string Window(int64_t kh, int64_t kw) {
    return "pads = " + List({Pick(0, kh - 1), Pick(0, kw - 1), Pick(0, kh - 1), Pick(0, kw - 1)}) +
           ", strides = " + List({Pick(1, 2), Pick(1, 2)}) + ", dilations = " + List({Pick(1, 2), Pick(1, 2)});
  }
  Layer Convolution() {
    const int64_t groups = Pick(1, 3), in = Pick(2, 18), out = Pick(9, 40), kh = Pick(1, 3), kw = Pick(1, 3);
    return {"conv",
            "f32[n, " + std::to_string(groups * in) + ", h, w]",
            {F32({groups * out, in, kh, kw}), F32({groups * out})},
            "%y : f32[*] = Conv(%x, %w0, %w1) {group = " + std::to_string(groups) + ", " + Window(kh, kw) + "}",
            {{Pick(1, 2), Pick(5, 9), Pick(5, 9)}, {1, 5, 5}}};
  }
  Layer Depthwise() {
    const int64_t channels = Pick(17, 40), kh = Pick(1, 3), kw = Pick(1, 3);
    return {"depthwise",
            "f32[n, " + std::to_string(channels) + ", h, w]",
            {F32({channels, 1, kh, kw}), F32({channels})},
            "%y : f32[*] = Conv(%x, %w0, %w1) {group = " + std::to_string(channels) + ", " + Window(kh, kw) + "}",
            {{Pick(1, 2), Pick(5, 9), Pick(5, 9)}, {1, 5, 5}}};
  }
  Layer Lstm() {
    const int64_t features = Pick(5, 20), units = Pick(3, 20);
    return {"lstm",
            "f32[4, n, " + std::to_string(features) + "]",
            {F32({1, 4 * units, features}), F32({1, 4 * units, units})},
            "%y : f32[*] = LSTM(%x, %w0, %w1) {hidden_size = " + std::to_string(units) + "}",
            {{Pick(1, 5)}, {1}}};
  }

  std::mt19937_64 random_;
};

TEST(GivenWeights, RandomLayersGiveWhatTheInterpreterGives) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  const char* given = std::getenv("KILN_TEST_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "KILN_TEST_SEED=" << seed << "\n";
  RandomLayers layers(seed);
  CompiledRunner compiled(HostTargets().front());
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const Layer layer = layers.Next();
    SCOPED_TRACE("layer " + std::to_string(i) + " of seed " + std::to_string(seed) + "\n" + TextOf(layer));
    const lower::LoweredSegment lowered =
        CheckSegment(SegmentOf(TextOf(layer)), {.shapes = layer.shapes,
                                                .targets = {HostTargets().front()},
                                                .form = WeightForm::kAsGiven,
                                                .exact = i % 2 == 0,
                                                .runner = [&](Target) { return compiled.runner(); }});
    EXPECT_FALSE(lowered.plan.PacksWeights()) << Describe(lowered);
  }
}

// Weights of a product are read where they lie: no step but the product's own.
TEST(GivenWeights, AProductAndAPointwiseConvolutionCopyNoWeights) {
  for (const char* name : {"Product", "ProductOfBatches", "Gemm"}) {
    const auto* layer = std::ranges::find(kLayers, std::string_view(name), &Layer::name);
    const lower::LoweredSegment lowered =
        CheckSegment(SegmentOf(TextOf(*layer)), {.shapes = layer->shapes, .form = WeightForm::kAsGiven});
    EXPECT_EQ(std::ranges::count_if(lowered.plan.steps,
                                    [](const PlanStep& step) { return step.label.starts_with("matmul"); }),
              1);
    for (const PlanBuffer& buffer : lowered.plan.buffers) {
      ASSERT_TRUE(buffer.bytes.is_const()) << name;
      EXPECT_LE(buffer.bytes.value(), 200) << name << ": at most a vector of Gemm's third operand";
    }
  }
  const auto* layer = std::ranges::find(kLayers, std::string_view("Pointwise"), &Layer::name);
  const lower::LoweredSegment lowered =
      CheckSegment(SegmentOf(TextOf(*layer)), {.shapes = layer->shapes, .form = WeightForm::kAsGiven});
  for (const PlanStep& step : lowered.plan.steps) EXPECT_FALSE(step.label.starts_with("reorder weights")) << step.label;
}

TEST(GivenWeights, APlanThatSaysSoAndPacksAWeightIsRefused) {
  const Segment segment = SegmentOf(TextOf(kLayers[0]));
  Result<lower::LoweredSegment> lowered =
      lower::LowerSegment({segment, Target::kX86V3, NumericMode::kDefault, {7}, {}});
  ASSERT_TRUE(lowered.has_value());
  lowered->plan.kernels.assign(lowered->specs.size(), Digest{});
  ASSERT_TRUE(lowered->plan.PacksWeights());
  EXPECT_TRUE(VerifyPlan(lowered->plan, segment).has_value());
  lowered->plan.weights = WeightForm::kAsGiven;
  const Status refused = VerifyPlan(lowered->plan, segment);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kMalformed);
  EXPECT_NE(refused.error().message.find("packs weight 0"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace kiln::testing
