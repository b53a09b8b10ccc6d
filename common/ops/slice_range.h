// The one meaning of a slice along one dim, for the shape rule and the view.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kiln {

struct SliceRange {
  int64_t start = 0;   // first element taken
  int64_t length = 0;  // number of elements taken
};

// ONNX Slice along a dim of `dim` elements: negative bounds count from the end, bounds are clamped, INT64_MIN and
// INT64_MAX included. Precondition: step != 0, dim >= 0.
inline SliceRange ResolveSlice(int64_t start, int64_t end, int64_t step, int64_t dim) {
  const auto from_end = [dim](int64_t bound) { return bound < 0 ? std::max(bound, -dim - 1) + dim : bound; };
  start = from_end(start);
  end = from_end(end);
  if (step > 0) {
    start = std::clamp<int64_t>(start, 0, dim);
    end = std::clamp<int64_t>(end, 0, dim);
    return {start, end <= start ? 0 : (end - start - 1) / step + 1};
  }
  start = std::min(std::max<int64_t>(start, 0), dim - 1);
  end = std::min(std::max<int64_t>(end, -1), dim - 1);
  if (dim == 0 || start <= end) return {0, 0};
  // Unsigned negation, so that INT64_MIN is defined.
  const uint64_t stride = uint64_t{0} - static_cast<uint64_t>(step);
  return {start, static_cast<int64_t>(static_cast<uint64_t>(start - end - 1) / stride) + 1};
}

}  // namespace kiln
