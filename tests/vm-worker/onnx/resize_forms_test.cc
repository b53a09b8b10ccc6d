// Resize of operator set 10 and Upsample, whose forms fix what later ones have attributes for: x_original = x / scale,
// in float; nearest takes the element below, and where an axis shrinks the one above. Import folds the results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/vm-worker/onnx/model_builder.h"

namespace kiln::onnx {
namespace {

struct Form {
  std::string op;
  int64_t opset;
  bool shrinks;  // whether scales below 1 are legal
};
const Form kForms[] = {{"Resize", 10, true}, {"Upsample", 1, false}, {"Upsample", 7, false}, {"Upsample", 9, false}};

int64_t Elements(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

Result<ImportedModel> ImportForm(const Form& form, const std::string& mode, const std::vector<int64_t>& dims,
                                 const std::vector<float>& scales) {
  std::vector<float> values;
  for (int64_t i = 0; i < Elements(dims); ++i) values.push_back(static_cast<float>(i));
  TestModel model(form.opset);
  model.Initializer(FloatTensor("x", dims, values));
  const AttributeProto mode_attribute = TextAttribute("mode", mode);
  if (form.opset == 1) {
    model.Node(form.op, {"x"}, {"y"},
               {mode_attribute, FloatAttribute("height_scale", scales[2]), FloatAttribute("width_scale", scales[3])});
  } else if (form.opset == 7) {
    model.Node(form.op, {"x"}, {"y"}, {mode_attribute, FloatsAttribute("scales", scales)});
  } else {
    model.Initializer(FloatTensor("s", {static_cast<int64_t>(scales.size())}, scales));
    model.Node(form.op, {"x", "s"}, {"y"}, {mode_attribute});
  }
  return model.Output("y").Import();
}

std::vector<int64_t> NearestIndices(int64_t size, float scale) {
  std::vector<int64_t> indices;
  const auto count = static_cast<int64_t>(std::floor(static_cast<float>(size) * scale));
  for (int64_t i = 0; i < count; ++i) {
    const float position = static_cast<float>(i) / scale;
    const auto index = static_cast<int64_t>(scale < 1 ? std::ceil(position) : std::floor(position));
    indices.push_back(std::min(index, size - 1));
  }
  return indices;
}

TEST(ResizeForms, NearestTakesTheElementBelowAndWhereAnAxisShrinksTheOneAbove) {
  const std::vector<std::vector<float>> scales = {
      {1, 1, 2, 2},       {1, 1, 0.6f, 0.6f}, {1, 1, 0.5f, 2}, {1, 1, 3, 0.75f}, {1, 1, 1.2f, 0.3f},
      {1, 1, 1.7f, 1.5f}, {1, 1, 0.9f, 0.7f}, {1, 1, 1, 0.4f}, {2, 0.6f, 1, 1},  {0.5f, 2, 0.8f, 1.25f}};
  const std::vector<int64_t> dims = {2, 3, 5, 7};
  int compared = 0;
  for (const Form& form : kForms) {
    for (const std::vector<float>& scale : scales) {
      const bool shrinks = std::ranges::any_of(scale, [](float s) { return s < 1; });
      if (form.opset == 1 && (scale[0] != 1 || scale[1] != 1)) continue;
      const auto imported = ImportForm(form, "nearest", dims, scale);
      if (shrinks && !form.shrinks) {
        ASSERT_FALSE(imported.has_value()) << form.op << " " << form.opset;
        EXPECT_THAT(imported.error().message, testing::HasSubstr("scale"));
        continue;
      }
      ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
      const Tensor* got = ConstantOutput(imported->program, 0);
      ASSERT_NE(got, nullptr);
      std::vector<float> expected;
      for (const int64_t a : NearestIndices(dims[0], scale[0]))
        for (const int64_t b : NearestIndices(dims[1], scale[1]))
          for (const int64_t c : NearestIndices(dims[2], scale[2]))
            for (const int64_t d : NearestIndices(dims[3], scale[3]))
              expected.push_back(static_cast<float>(((a * dims[1] + b) * dims[2] + c) * dims[3] + d));
      EXPECT_THAT(got->values<float>(), testing::ElementsAreArray(expected)) << form.op << " " << form.opset;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 10 + 2 + 2 + 2);
}

// Between the neighbours of x / scale; beyond the last element its value goes on.
TEST(ResizeForms, LinearInterpolatesAtTheSamePositions) {
  for (const Form& form : kForms) {
    for (const float scale : {1.5f, 2.0f, 3.0f, 0.6f}) {
      if (scale < 1 && !form.shrinks) continue;
      const auto imported = ImportForm(form, form.opset == 1 ? "bilinear" : "linear", {1, 1, 1, 7}, {1, 1, 1, scale});
      ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
      const Tensor* got = ConstantOutput(imported->program, 0);
      ASSERT_NE(got, nullptr);
      std::vector<float> expected;
      for (size_t i = 0; i < static_cast<size_t>(std::floor(7 * scale)); ++i) {
        expected.push_back(std::min(static_cast<float>(i) / scale, 6.0f));  // the values are the positions
      }
      EXPECT_THAT(got->values<float>(), testing::Pointwise(testing::FloatNear(1e-5f), expected)) << form.op;
    }
  }
}

// The example of the format's test_resize_downsample_nearest.
TEST(ResizeForms, ShrinkingToSixTenthsTakesTheFirstAndThird) {
  const auto imported = ImportForm({"Resize", 10, true}, "nearest", {1, 1, 2, 4}, {1, 1, 0.6f, 0.6f});
  ASSERT_TRUE(imported.has_value());
  EXPECT_THAT(ConstantOutput(imported->program, 0)->values<float>(), testing::ElementsAre(0, 2));
}

}  // namespace
}  // namespace kiln::onnx
