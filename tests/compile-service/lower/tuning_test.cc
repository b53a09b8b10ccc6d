// Forms of kernels that the tuned tier chooses from: every one of them makes a plan with the same answers.
#include "compile-service/lower/tuning.h"

#include <gtest/gtest.h>

#include <random>

#include "common/artifact/kernel_abi.h"
#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

using lower::FindTunable;
using lower::LoweredSegment;
using lower::TakeForms;
using lower::Tunable;

LoweredSegment Lowered(const Segment& segment, Target target, std::vector<int64_t> hints) {
  return lower::LowerSegment({segment, target, NumericMode::kDefault, std::move(hints), {}}).value();
}

Tensor Random(DType dtype, const Dims& dims, uint64_t seed) {
  Tensor tensor = Tensor::Zeros(dtype, dims);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = 0; i < NumElements(dims); ++i) tensor.ref.as<float>()[i] = uniform(random);
  return tensor;
}

// Two layers of one product each, of which the second has two equal copies, and a depthwise convolution.
constexpr const char* kProducts = R"(program "p" {
  symbol n in [1, 4096]
  constant w : f32[40, 50] = splat 0.5
  constant v : f32[50, 50] = splat 0.25
  func main(%x: f32[n, 40]) -> (%y) {
    %w : f32[40, 50] = Constant() {value = @w}
    %v : f32[50, 50] = Constant() {value = @v}
    %a : f32[n, 50] = MatMul(%x, %w)
    %b : f32[n, 50] = Relu(%a)
    %c : f32[n, 50] = MatMul(%b, %v)
    %d : f32[n, 50] = Relu(%c)
    %e : f32[n, 50] = MatMul(%d, %v)
    %y : f32[n, 50] = Tanh(%e)
  }
})";
constexpr const char* kDepthwise = R"(program "p" {
  symbol h in [1, 512]
  symbol w in [1, 512]
  constant k : f32[20, 1, 3, 3] = splat 0.5
  func main(%x: f32[1, 20, h, w]) -> (%y) {
    %k : f32[20, 1, 3, 3] = Constant() {value = @k}
    %a : f32[*] = Conv(%x, %k) {group = 20, pads = [1, 1, 1, 1]}
    %y : f32[*] = Relu(%a)
  }
})";

constexpr const char* kDense = R"(program "p" {
  symbol h in [1, 512]
  symbol w in [1, 512]
  constant k : f32[24, 20, 3, 3] = splat 0.5
  func main(%x: f32[1, 20, h, w]) -> (%y) {
    %k : f32[24, 20, 3, 3] = Constant() {value = @k}
    %a : f32[*] = Conv(%x, %k) {pads = [1, 1, 1, 1]}
    %y : f32[*] = Relu(%a)
  }
})";
// Neither side is a weight: both are read as they lie.
constexpr const char* kSquare = R"(program "p" {
  symbol n in [1, 4096]
  func main(%x: f32[n, n]) -> (%y) {
    %y : f32[n, n] = MatMul(%x, %x)
  }
})";
constexpr const char* kAttention = R"(program "p" {
  symbol m in [1, 4096]
  func main(%x: f32[3, m, 20]) -> (%y) {
    %t : f32[3, 20, m] = Transpose(%x) {perm = [0, 2, 1]}
    %s : f32[3, m, m] = MatMul(%x, %t)
    %p : f32[3, m, m] = Softmax(%s) {axis = -1}
    %y : f32[3, m, 20] = MatMul(%p, %x)
  }
})";

Target TestTarget() {
  return HostTargets().empty() ? Target::kX86V3 : HostTargets().front();
}

// Runs a plan of one run-time input.
std::vector<float> Answer(const LoweredSegment& lowered, const Segment& segment, const std::vector<int64_t>& symbols,
                          const Tensor& input, CompiledRunner& runner) {
  std::vector<Tensor> weights;
  std::vector<TensorRef> refs;
  for (int w = 0; w < segment.weight_count(); ++w) {
    const TensorDesc& desc = segment.input(segment.runtime_inputs + w);
    Dims dims;
    for (Dim dim : *desc.dims) dims.push_back(dim.value());
    weights.push_back(Random(DType::kF32, dims, 100 + static_cast<uint64_t>(w)));
    refs.push_back(weights.back().ref);
  }
  const TensorRef inputs[] = {input.ref};
  const auto outputs = RunLowered(lowered, symbols, inputs, refs, InfoOf(TestTarget()).f32_lanes(), runner.runner());
  EXPECT_TRUE(outputs.has_value()) << ToString(outputs.error());
  if (!outputs.has_value()) return {};
  const TensorRef& out = outputs->at(0).ref;
  return {out.as<float>(), out.as<float>() + out.elements()};
}

// The hottest kernel is to be a `Spec`.
template <class Spec>
void EveryFormAnswersAlike(const char* text, const std::vector<int64_t>& symbols, const Dims& input_dims) {
  const Segment segment = SegmentOf(text);
  const LoweredSegment base = Lowered(segment, TestTarget(), symbols);
  const std::vector<Tunable> tunable = FindTunable(base, TestTarget(), symbols);
  ASSERT_FALSE(tunable.empty());
  ASSERT_TRUE(std::holds_alternative<Spec>(tunable.front().forms.front().kernel)) << Describe(base);
  CompiledRunner runner(TestTarget());
  const Tensor input = Random(DType::kF32, input_dims, 7);
  const std::vector<float> expected = Answer(base, segment, symbols, input, runner);
  for (size_t k = 0; k < tunable.size(); ++k)
    for (uint32_t f = 0; f < tunable[k].forms.size(); ++f) {
      LoweredSegment other = Lowered(segment, TestTarget(), symbols);
      std::vector<uint32_t> chosen(tunable.size(), 0);
      chosen[k] = f;
      ASSERT_TRUE(TakeForms(other, TestTarget(), tunable, chosen).has_value());
      const std::vector<float> actual = Answer(other, segment, symbols, input, runner);  // ranges are checked there
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i)
        ASSERT_NEAR(actual[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << Describe(other) << i;
    }
}

TEST(Tuning, EveryTileOfAProductAnswersAlike) {
  for (const int64_t rows : {1, 7, 61}) EveryFormAnswersAlike<ir::ContractionSpec>(kProducts, {rows}, {rows, 40});
  for (const int64_t n : {7, 61}) EveryFormAnswersAlike<ir::ContractionSpec>(kSquare, {n}, {n, n});
}

TEST(Tuning, EveryTileOfAConvolutionAnswersAlike) {
  EveryFormAnswersAlike<ir::ContractionSpec>(kDense, {5, 19}, {1, 20, 5, 19});
  EveryFormAnswersAlike<ir::ContractionSpec>(kDense, {1, 1}, {1, 20, 1, 1});
}

TEST(Tuning, EveryTileOfAttentionAnswersAlike) {
  for (const int64_t rows : {1, 7, 61}) EveryFormAnswersAlike<ir::AttentionSpec>(kAttention, {rows}, {3, rows, 20});
}

TEST(Tuning, EveryNumberOfColumnsOfAWindowAnswersAlike) {
  EveryFormAnswersAlike<ir::WindowSpec>(kDepthwise, {5, 19}, {1, 20, 5, 19});
  EveryFormAnswersAlike<ir::WindowSpec>(kDepthwise, {1, 1}, {1, 20, 1, 1});
}

TEST(Tuning, TheFirstFormIsThePlansOwnAndPackedWidthsStay) {
  const Segment segment = SegmentOf(kProducts);
  const LoweredSegment base = Lowered(segment, Target::kX86V4, {64});
  for (const Tunable& tunable : FindTunable(base, Target::kX86V4, std::vector<int64_t>{64})) {
    EXPECT_EQ(tunable.forms.front(), base.specs[static_cast<size_t>(tunable.kernel)]);
    EXPECT_GT(tunable.forms.size(), 1u);
    EXPECT_LE(tunable.forms.size(), lower::kTunedFormsMax);
    ASSERT_FALSE(tunable.calls.empty());
    for (const ir::KernelSpec& form : tunable.forms) {
      const auto& own = std::get<ir::ContractionSpec>(tunable.forms.front().kernel);
      EXPECT_EQ(std::get<ir::ContractionSpec>(form.kernel).tile.nv, own.tile.nv);
    }
  }
}

TEST(Tuning, EqualLayersAreTimedTogetherAndKernelsThatBecomeEqualBecomeOne) {
  const Segment segment = SegmentOf(kProducts);
  LoweredSegment lowered = Lowered(segment, Target::kX86V4, {64});
  const std::vector<int64_t> hints{64};
  const std::vector<Tunable> tunable = FindTunable(lowered, Target::kX86V4, hints);
  const size_t before = lowered.specs.size();
  // A plan whose two last products differ in their tile only is the plan itself again once both take one tile.
  Tunable changed = tunable.front();
  lowered.specs.push_back(changed.forms[1]);
  for (PlanStep& step : lowered.plan.steps) {
    auto* kernel = std::get_if<KernelStep>(&step.step);
    if (kernel != nullptr && kernel->kernel == changed.kernel) kernel->kernel = static_cast<int32_t>(before);
  }
  changed.kernel = static_cast<int32_t>(before);
  const std::vector<Tunable> one{changed};
  ASSERT_TRUE(TakeForms(lowered, Target::kX86V4, one, std::vector<uint32_t>{0}).has_value());
  EXPECT_EQ(lowered.specs.size(), before);
  for (const PlanStep& step : lowered.plan.steps)
    if (const auto* kernel = std::get_if<KernelStep>(&step.step)) {
      EXPECT_LT(static_cast<size_t>(kernel->kernel), lowered.specs.size());
    }
}

TEST(Tuning, AFormThatDoesNotExistIsRefused) {
  const Segment segment = SegmentOf(kProducts);
  LoweredSegment lowered = Lowered(segment, Target::kX86V4, {64});
  const std::vector<Tunable> tunable = FindTunable(lowered, Target::kX86V4, std::vector<int64_t>{64});
  EXPECT_FALSE(TakeForms(lowered, Target::kX86V4, tunable, std::vector<uint32_t>(tunable.size(), 99)).has_value());
  EXPECT_FALSE(TakeForms(lowered, Target::kX86V4, tunable, {}).has_value());
}

}  // namespace
}  // namespace kiln::testing
