// The image that a convolution or pooling reads as its kernel does.
#pragma once

#include <cstdint>
#include <vector>

#include "compile-service/lower/convolution.h"
#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

// The image, channels innermost, and how it is read.
struct ConvolvedImage {
  WindowShape shape;
  Place place;
  std::vector<Dim> dims;  // of the input, N, C, spatial…
  int64_t channels = 0;   // per group, that lie together at one kernel position
};

// A padded image copied into a border that repeats the element `zero`, so that every window lies inside. `out`: dims of
// the result. Other images come back as they are.
Result<ConvolvedImage> WithBorder(PlanBuilder& b, DType dtype, Place zero, ConvolvedImage image,
                                  const std::vector<Dim>& out);

// Lines of at most so many pixels are narrow.
inline constexpr int64_t kNarrowLine = 128;
// Whether a border makes the convolution of f32 faster. Windows that reach outside are worked on position by position,
// which of few channels costs more than their products; and in narrow lines, whose `width` is known, most do.
bool GainsFromBorder(const ConvolvedImage& image, Dim width);

}  // namespace kiln::lower
