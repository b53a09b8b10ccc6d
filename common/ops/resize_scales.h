// How Resize's operands decide sizes and scales: shared by its shape rule and its kernel.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/bytecode/program.h"
#include "common/ops/list.h"

namespace kiln {

// floor(size * scale) in float, as the format's scales are float. Precondition: scale > 0.
inline int64_t ScaledSize(int64_t size, double scale) {
  const float scaled = std::floor(static_cast<float>(size) * static_cast<float>(scale));
  return scaled < 9e18f ? static_cast<int64_t>(scaled) : INT64_MAX;
}

// Attribute `axes`, normalised, or every dim.
inline Result<List<int>> ResizeAxes(const Attributes& attributes, int rank) {
  List<int> axes;
  for (const int64_t given : attributes.Ints("axes")) {
    const int64_t axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis >= rank) {
      return Fail(ErrorCode::kShapeMismatch,
                  "axis " + std::to_string(given) + " of Resize is outside the rank, " + std::to_string(rank));
    }
    axes.push_back(static_cast<int>(axis));
  }
  if (axes.empty()) {
    axes.resize(static_cast<size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
  }
  return axes;
}

struct AspectSizes {
  double scale = 1.0;
  List<int64_t> sizes;
};
// One scale for all axes under `keep_aspect_ratio_policy` not_larger or not_smaller.
inline AspectSizes KeepAspect(const Attributes& attributes, std::span<const int64_t> in,
                              std::span<const int64_t> wanted) {
  const bool not_larger = attributes.Text("keep_aspect_ratio_policy", "stretch") == "not_larger";
  AspectSizes result;
  for (size_t i = 0; i < in.size(); ++i) {
    const double scale = in[i] == 0 ? 1.0 : static_cast<double>(wanted[i]) / static_cast<double>(in[i]);
    const bool takes = i == 0 || (not_larger ? scale < result.scale : scale > result.scale);
    if (takes) result.scale = scale;
  }
  for (const int64_t size : in) {
    const double scaled = std::floor(static_cast<double>(size) * result.scale + 0.5);
    result.sizes.push_back(scaled < 9e18 ? static_cast<int64_t>(std::max(scaled, -1.0)) : INT64_MAX);
  }
  return result;
}

}  // namespace kiln
