#include "common/ops/resize_rules.h"

#include <array>
#include <string>
#include <utility>

namespace kiln {
namespace {

template <class E, size_t N>
Result<E> Choose(const Attributes& attributes, const char* attribute,
                 const std::array<std::pair<std::string_view, E>, N>& names) {
  const std::string_view text = attributes.Text(attribute, names[0].first);
  for (const auto& [name, value] : names) {
    if (name == text) return value;
  }
  return Fail(ErrorCode::kUnsupported,
              "attribute `" + std::string(attribute) + "` of Resize is '" + std::string(text) + "'");
}

}  // namespace

Result<ResizeRules> ReadResizeRules(const Attributes& attributes) {
  using Coordinates = ResizeCoordinates;
  using Rounding = ResizeRounding;
  static constexpr std::array<std::pair<std::string_view, ResizeMode>, 3> kModes{
      {{"nearest", ResizeMode::kNearest}, {"linear", ResizeMode::kLinear}, {"cubic", ResizeMode::kCubic}}};
  static constexpr std::array<std::pair<std::string_view, Coordinates>, 7> kCoordinates{
      {{"half_pixel", Coordinates::kHalfPixel},
       {"half_pixel_symmetric", Coordinates::kHalfPixelSymmetric},
       {"pytorch_half_pixel", Coordinates::kPytorchHalfPixel},
       {"align_corners", Coordinates::kAlignCorners},
       {"asymmetric", Coordinates::kAsymmetric},
       {"tf_crop_and_resize", Coordinates::kCropAndResize},
       {"tf_half_pixel_for_nn", Coordinates::kTfHalfPixelForNn}}};
  static constexpr std::array<std::pair<std::string_view, Rounding>, 5> kRoundings{
      {{"round_prefer_floor", Rounding::kRoundPreferFloor},
       {"round_prefer_ceil", Rounding::kRoundPreferCeil},
       {"floor", Rounding::kFloor},
       {"ceil", Rounding::kCeil},
       {"ceil_when_shrinking", Rounding::kCeilWhenShrinking}}};
  ResizeRules rules;
  ASSIGN_OR_RETURN(rules.mode, Choose(attributes, "mode", kModes));
  ASSIGN_OR_RETURN(rules.coordinates, Choose(attributes, "coordinate_transformation_mode", kCoordinates));
  ASSIGN_OR_RETURN(rules.rounding, Choose(attributes, "nearest_mode", kRoundings));
  rules.antialias = attributes.Int("antialias", 0) != 0;
  rules.exclude_outside = attributes.Int("exclude_outside", 0) != 0;
  rules.cubic = attributes.Float("cubic_coeff_a", -0.75);
  rules.extrapolation = attributes.Float("extrapolation_value", 0.0);
  return rules;
}

}  // namespace kiln
