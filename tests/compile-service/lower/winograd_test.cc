// Convolutions by fewer products: which ones are, and that plans with them give what the interpreter gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"

namespace kiln::testing {
namespace {

std::string Convolution(const std::string& weights, const std::string& attributes,
                        const std::string& input = "2, 32, h, w") {
  return "program \"p\" { symbol h in [4, 512] symbol w in [4, 512]\nconstant k : f32[" + weights +
         "] = splat 0.5\nconstant c : f32[" + weights.substr(0, weights.find(',')) +
         "] = splat 0.5\nfunc main(%x: f32[" + input + "]) -> (%y) {\n%k : f32[" + weights +
         "] = Constant() {value = @k}\n%c : f32[" + weights.substr(0, weights.find(',')) +
         "] = Constant() {value = @c}\n%s : f32[*] = Conv(%x, %k, %c) {" + attributes +
         "}\n%y : f32[*] = Relu(%s)\n} }";
}

std::string Same3x3(int64_t out) {
  return Convolution(std::to_string(out) + ", 32, 3, 3", "pads = [1, 1, 1, 1]");
}

bool IsWinograd(const lower::LoweredSegment& lowered) {
  return std::ranges::any_of(lowered.specs, [](const ir::KernelSpec& spec) {
    const auto* product = std::get_if<ir::ContractionSpec>(&spec.kernel);
    return product != nullptr && product->winograd;
  });
}

lower::LoweredSegment Lowered(const std::string& text, NumericMode mode = NumericMode::kDefault, int64_t width = 16) {
  return CheckSegment(SegmentOf(text), {.shapes = {{12, width}, {5, 4}}, .targets = {Target::kX86V4}, .mode = mode});
}

TEST(WinogradsForm, IsForManyChannelsAndSmallSteps) {
  EXPECT_TRUE(IsWinograd(Lowered(Same3x3(48))));
  EXPECT_TRUE(IsWinograd(Lowered(Convolution("40, 32, 1, 3", "pads = [0, 1, 0, 1]"))));
  EXPECT_TRUE(IsWinograd(Lowered(Convolution("64, 16, 3, 3", "group = 2"))));
  EXPECT_FALSE(IsWinograd(Lowered(Convolution("48, 32, 3, 3", "strides = [2, 2]"))));
  EXPECT_FALSE(IsWinograd(Lowered(Convolution("48, 32, 3, 3", "strides = [2, 1]"))));
  EXPECT_FALSE(IsWinograd(Lowered(Convolution("48, 32, 2, 3", "dilations = [2, 1]"))));
  EXPECT_FALSE(IsWinograd(Lowered(Convolution("48, 32, 3, 1", ""))));
  EXPECT_FALSE(IsWinograd(Lowered(Convolution("48, 3, 3, 3", "", "1, 3, h, w"))));
  EXPECT_FALSE(IsWinograd(Lowered(Same3x3(48), NumericMode::kDefault, 5)));  // it would make eight columns
}

// A panel's weights in this form must fit beside the image, so with many channels panels are narrower, for any image.
TEST(WinogradsForm, MakesPanelsNarrowerForMoreChannels) {
  const std::string weights = "64, 256, 3, 3", input = "1, 256, h, w";
  const auto tile_at = [&](int64_t width, bool winograd) {
    const lower::LoweredSegment lowered = CheckSegment(SegmentOf(Convolution(weights, "pads = [1, 1, 1, 1]", input)),
                                                       {.shapes = {{4, width}}, .targets = {Target::kX86V4}});
    EXPECT_EQ(IsWinograd(lowered), winograd);
    const auto product = std::ranges::find_if(lowered.specs, [](const ir::KernelSpec& spec) {
      return std::holds_alternative<ir::ContractionSpec>(spec.kernel);
    });
    return product == lowered.specs.end() ? 0 : std::get<ir::ContractionSpec>(product->kernel).tile.nv;
  };
  EXPECT_EQ(tile_at(64, true), 2);
  EXPECT_EQ(tile_at(5, false), 2);
}

// The interpreter's operations, in another order.
TEST(WinogradsForm, IsNoStrictOne) {
  EXPECT_FALSE(IsWinograd(Lowered(Same3x3(48), NumericMode::kStrict)));
}

TEST(WinogradsForm, CompiledPlansGiveWhatTheInterpreterGives) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  const std::vector<std::vector<int64_t>> shapes = {{12, 16}, {4, 4}, {7, 70}, {25, 5}, {9, 9}};
  for (Target target : HostTargets()) {
    CompiledRunner compiled(target);
    for (const std::string& text :
         {Same3x3(48), Same3x3(9), Convolution("40, 32, 1, 3", "pads = [0, 0, 0, 2]"),
          Convolution("40, 32, 2, 3", "pads = [1, 0, 0, 1]"), Convolution("64, 16, 3, 3", "group = 2")})
      CheckSegment(SegmentOf(text),
                   {.shapes = shapes, .targets = {target}, .runner = [&](Target) { return compiled.runner(); }});
  }
}

Tensor Random(const Dims& dims, uint64_t seed) {
  Tensor tensor = Tensor::Zeros(DType::kF32, dims);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : tensor.values<float>()) value = uniform(random);
  return tensor;
}

// What lines and pixels hold, however large, shows where windows see them and nowhere else.
TEST(WinogradsForm, KeepsRoundingInItsLineAndInfinitiesInTheirWindows) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  constexpr int64_t kSide = 22, kChannels = 32, kOut = 48;
  const Target target = HostTargets().front();
  const Segment segment = SegmentOf(Same3x3(kOut));
  const lower::LoweredSegment lowered =
      lower::LowerSegment({segment, target, NumericMode::kDefault, {kSide, kSide}, {}}).value();
  ASSERT_TRUE(IsWinograd(lowered));
  CompiledRunner compiled(target);
  const Tensor weights = Random({kOut, kChannels, 3, 3}, 1), bias = Random({kOut}, 2);
  const TensorRef constants[] = {weights.ref, bias.ref};
  const auto answer = [&](const Tensor& image) {
    const TensorRef inputs[] = {image.ref};
    const int64_t symbols[] = {kSide, kSide};
    auto outputs = RunLowered(lowered, symbols, inputs, constants, InfoOf(target).f32_lanes(), compiled.runner());
    EXPECT_TRUE(outputs.has_value()) << ToString(outputs.error());
    return std::move(outputs->at(0));
  };
  const Tensor plain = Random({2, kChannels, kSide, kSide}, 3);
  const Tensor usual = answer(plain);
  const auto changed = [&](float value, bool whole_line) {
    Tensor image = Random({2, kChannels, kSide, kSide}, 3);
    for (int64_t c = 0; c < 2 * kChannels; ++c)
      for (int64_t w = 0; w < kSide; ++w)
        if (whole_line || (w == 9 && c == 5))
          image.values<float>()[static_cast<size_t>((c * kSide + 11) * kSide + w)] = value;
    return answer(image);
  };
  const auto expect = [&](const Tensor& got, bool whole_line, float tolerance) {
    for (int64_t i = 0; i < NumElements(usual.dims()); ++i) {
      const int64_t line = i / kSide % kSide, column = i % kSide, image = i / (kOut * kSide * kSide);
      const bool seen = std::abs(line - 11) <= 1 && (whole_line || (std::abs(column - 9) <= 1 && image == 0));
      const float want = usual.values<float>()[static_cast<size_t>(i)],
                  is = got.values<float>()[static_cast<size_t>(i)];
      if (seen) continue;
      ASSERT_NEAR(want, is, std::abs(line - 11) <= 1 ? tolerance : 0) << "line " << line << " column " << column;
    }
  };
  for (const float value : {1e6F, 1e35F, INFINITY, NAN}) expect(changed(value, true), true, 0);
  for (const float value : {1e35F, -INFINITY, NAN}) expect(changed(value, false), false, 1e-4F);
}

}  // namespace
}  // namespace kiln::testing
