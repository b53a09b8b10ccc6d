// Resize of integers: interpolated over all axes, one integer at the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/common/ops/op_runner.h"

namespace kiln::testing {
namespace {

Result<Tensor> Resized(const Tensor& x, std::string_view mode, const std::vector<float>& scales, bool antialias) {
  const Tensor factors = F32(Dims{static_cast<int64_t>(scales.size())}, scales);
  OpCase test{.op = TensorOp::kResize, .inputs = {x.ref, std::nullopt, factors.ref}};
  test.attributes.Set("mode", std::string(mode));
  test.attributes.Set("antialias", int64_t{antialias});
  auto outputs = RunOp(test);
  if (!outputs.has_value()) return std::unexpected(outputs.error());
  return std::move(outputs->front());
}

std::pair<double, double> Span(DType dtype) {
  return DispatchDType(dtype, []<class T>() -> std::pair<double, double> {
    if constexpr (std::is_integral_v<T>) {
      return {static_cast<double>(std::numeric_limits<T>::min()), static_cast<double>(std::numeric_limits<T>::max())};
    }
    return {0, 0};
  });
}

// The rule that docs/onnx.md states, over the f64 result.
double Whole(double value, std::string_view mode, bool antialias, std::pair<double, double> span) {
  const bool cut = mode == "linear" && !antialias;
  const double whole = cut ? std::trunc(static_cast<double>(static_cast<float>(value))) : std::nearbyint(value);
  return std::clamp(whole, span.first, span.second);
}

TEST(ResizeOfIntegers, IsTheResultOfFloatsMadeWholeOnce) {
  const unsigned seed = 20240713;
  std::mt19937 random(seed);
  const std::vector<std::vector<float>> scales = {{2, 2},       {1, 3}, {1.5f, 0.75f}, {0.6f, 0.6f},
                                                  {1.7f, 2.5f}, {1, 1}, {0.5f, 1}};
  int types = 0;
  int runs = 0;
  for (int number = 0; number < 256; ++number) {
    const std::optional<DType> found = DTypeFromNumber(number);
    if (!found || !IsInteger(*found)) continue;
    ++types;
    const DType dtype = *found;
    const auto span = Span(dtype);
    std::uniform_int_distribution<int> draw(static_cast<int>(std::max(span.first, -128.0)),
                                            static_cast<int>(std::min(span.second, 255.0)));
    for (const std::string_view mode : {"linear", "cubic"}) {
      for (const bool antialias : {false, true}) {
        for (const std::vector<float>& scale : scales) {
          std::vector<double> values(5 * 4);
          for (double& value : values) value = draw(random);
          const auto got = Resized(Make(dtype, Dims{5, 4}, values), mode, scale, antialias);
          const auto wide = Resized(Make(DType::kF64, Dims{5, 4}, values), mode, scale, antialias);
          ASSERT_TRUE(got.has_value() && wide.has_value()) << DTypeName(dtype);
          std::vector<double> expected = Values(wide->ref);
          for (double& value : expected) value = Whole(value, mode, antialias, span);
          EXPECT_EQ(Values(got->ref), expected) << DTypeName(dtype) << " " << mode << " antialias " << antialias
                                                << " scales " << scale[0] << ", " << scale[1] << ", seed " << seed;
          ++runs;
        }
      }
    }
  }
  EXPECT_EQ(types, 8);
  EXPECT_EQ(runs, 8 * 4 * 7);
}

// Weights of thirds and fifths do not add up to one in floating point.
TEST(ResizeOfIntegers, KeepsAPictureOfOneColour) {
  for (const float scale : {0.3f, 0.6f, 0.7f, 1.2f, 1.5f, 1.7f, 3.0f, 3.3f}) {
    for (const double colour : {1.0, 3.0, 100.0, 255.0}) {
      const Tensor x = Make(DType::kU8, Dims{7, 9}, std::vector<double>(63, colour));
      const auto got = Resized(x, "linear", {scale, scale}, false);
      ASSERT_TRUE(got.has_value());
      for (const double value : Values(got->ref)) ASSERT_EQ(value, colour) << "scale " << scale;
    }
  }
}

}  // namespace
}  // namespace kiln::testing
