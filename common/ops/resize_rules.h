// What the attributes of Resize say: read once for the reference kernel and for generated ones.
#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "common/bytecode/program.h"

namespace kiln {

enum class ResizeMode : uint8_t { kNearest, kLinear, kCubic };
// How a position of the output is one of the input.
enum class ResizeCoordinates : uint8_t {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kCropAndResize,
  kTfHalfPixelForNn,
};
enum class ResizeRounding : uint8_t { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil, kCeilWhenShrinking };

struct ResizeRules {
  ResizeMode mode{};
  ResizeCoordinates coordinates{};
  ResizeRounding rounding{};
  bool antialias = false, exclude_outside = false;
  double cubic = 0, extrapolation = 0;
};

// Unsupported for a text that names none of them.
Result<ResizeRules> ReadResizeRules(const Attributes& attributes);

}  // namespace kiln
