// MaxRoiPool, as Fast R-CNN has it. A NaN is the largest value, and a bin of negative numbers has the largest of them.
#include <algorithm>
#include <cmath>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

// Pixels of one axis that a region covers: both ends belong to it, and it is never empty.
template <class T>
struct Extent {
  T start, bin;
};

template <class T>
Extent<T> ExtentOf(T low, T high, T scale, int64_t bins) {
  const T first = std::round(low * scale), last = std::round(high * scale);
  return {first, std::max(last - first + 1, T{1}) / static_cast<T>(bins)};
}

// Pixels [first, end) of a bin. Neighbours share a pixel where a border cuts it; what lies outside the image is left
// out.
struct Pixels {
  int64_t first, end;
};

template <class T>
Pixels PixelsOf(const Extent<T>& extent, int64_t bin, int64_t size) {
  const auto inside = [size](T position) { return std::clamp<int64_t>(Convert<int64_t>(position), 0, size); };
  // Where a region lies does not change its bins: the start, a whole number, comes last.
  return {inside(std::floor(static_cast<T>(bin) * extent.bin) + extent.start),
          inside(std::ceil(static_cast<T>(bin + 1) * extent.bin) + extent.start)};
}

// The largest value of a window of a row-major image, 0 of an empty one.
template <class T>
T Largest(const T* image, int64_t width, Pixels rows, Pixels columns) {
  if (rows.end <= rows.first || columns.end <= columns.first) return T(0);
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t y = rows.first; y < rows.end; ++y)
    for (int64_t x = columns.first; x < columns.end; ++x) largest = NanMax(largest, image[y * width + x]);
  return largest;
}

struct MaxRoiPoolOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef &x = call.inputs[0], &out = call.outputs[0];
    const int64_t channels = x.dims[1], height = x.dims[2], width = x.dims[3];
    const T scale = static_cast<T>(call.attributes->Float("spatial_scale", 1));
    T* y = out.as<T>();
    for (int64_t m = 0; m < out.dims[0]; ++m) {
      const T* region = call.inputs[1].as<T>() + m * 5;
      ASSIGN_OR_RETURN(const int64_t batch, BatchOf(call, m, region[0]));
      const auto columns = ExtentOf(region[1], region[3], scale, out.dims[3]);
      const auto rows = ExtentOf(region[2], region[4], scale, out.dims[2]);
      const T* image = x.as<T>() + batch * channels * height * width;
      for (int64_t c = 0; c < channels; ++c, image += height * width)
        for (int64_t row = 0; row < out.dims[2]; ++row)
          for (int64_t column = 0; column < out.dims[3]; ++column)
            *y++ = Largest(image, width, PixelsOf(rows, row, height), PixelsOf(columns, column, width));
    }
    return {};
  }

  template <class T>
  static Result<int64_t> BatchOf(const KernelCall& call, int64_t m, T index) {
    const int64_t size = call.inputs[0].dims[0];
    const int64_t batch = index > -1 && index < static_cast<T>(size) ? static_cast<int64_t>(index) : -1;
    if (batch >= 0 && batch < size) return batch;
    return Fail(ErrorCode::kOutOfRange, "batch index " + std::to_string(index) + " of region " + std::to_string(m) +
                                            " of MaxRoiPool is outside a batch of " + std::to_string(size));
  }
};

}  // namespace

ReferenceKernel MaxRoiPool(DType dtype) {
  return {FloatKernel<MaxRoiPoolOf>(dtype), false};
}

}  // namespace kiln::kernels
