// DeformConv: as Conv, with every tap of every output position displaced by an offset and weighted by a mask.
#include <algorithm>
#include <cmath>

#include "common/ops/kernels/conv.h"
#include "common/ops/kernels/gemm.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

// Linear interpolation in dims [d, 3) of a plane; positions outside weigh nothing.
template <class T>
T ValueAt(const ConvGeometry& g, const T* x, const T* position, int d) {
  if (d == 3) return *x;
  const T at = position[d];
  if (!(at > -1 && at < static_cast<T>(g.in[d]))) return T(0);
  int64_t stride = 1;
  for (int i = d + 1; i < 3; ++i) stride *= g.in[i];
  const T floor = std::floor(at);
  const T t = at - floor;
  const int64_t first = static_cast<int64_t>(floor);
  T sum = 0;
  if (first >= 0) sum += (1 - t) * ValueAt(g, x + first * stride, position, d + 1);
  if (t > 0 && first + 1 < g.in[d]) sum += t * ValueAt(g, x + (first + 1) * stride, position, d + 1);
  return sum;
}

// What one image's offsets and mask look like.
template <class T>
struct Displacement {
  const T* offsets;  // [offset groups, taps, rank, positions]
  const T* mask;     // [offset groups, taps, positions], or nullptr
  int rank;
  int64_t channels_per_group;
};

// Columns of one group of one image, as Im2Col makes them: row (c, tap), column (output position).
template <class T>
void DisplacedColumns(const ConvGeometry& g, const Displacement<T>& displacement, const T* x, int64_t first_channel,
                      T* columns) {
  const int64_t taps = g.KernelSize();
  const int64_t positions = g.OutSize();
  for (int64_t c = 0; c < g.in_channels; ++c, x += g.InSize()) {
    const int64_t offset_group = (first_channel + c) / displacement.channels_per_group;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t k[3] = {tap / (g.kernel[1] * g.kernel[2]), tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]};
      const int64_t row = offset_group * taps + tap;
      const T* offsets = displacement.offsets + row * displacement.rank * positions;
      const T* mask = displacement.mask == nullptr ? nullptr : displacement.mask + row * positions;
      for (int64_t p = 0; p < positions; ++p) {
        const int64_t o[3] = {p / (g.out[1] * g.out[2]), p / g.out[2] % g.out[1], p % g.out[2]};
        T position[3];
        for (int d = 0; d < 3; ++d) {
          const int own = d - (3 - displacement.rank);
          position[d] = static_cast<T>(o[d] * g.stride[d] + k[d] * g.dilation[d] - g.pad[d]);
          if (own >= 0) position[d] += offsets[own * positions + p];
        }
        const T value = ValueAt(g, x, position, 0);
        *columns++ = mask == nullptr ? value : value * mask[p];
      }
    }
  }
}

struct DeformConvOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& x = call.inputs[0];
    const TensorRef& w = call.inputs[1];
    const TensorRef& y = call.outputs[0];
    ASSIGN_OR_RETURN(const ConvGeometry g, MakeConvGeometry(*call.attributes, x.dims, y.dims, w.dims));
    if (y.elements() == 0) return {};
    const int64_t channels = g.out_channels * g.groups;
    const T* bias = call.Has(3) ? call.inputs[3].as<T>() : nullptr;
    for (int64_t row = 0; row < g.batch * channels; ++row) {
      std::fill_n(y.as<T>() + row * g.OutSize(), g.OutSize(), bias == nullptr ? T(0) : bias[row % channels]);
    }
    const int64_t offset_groups = call.attributes->Int("offset_group", 1);
    Displacement<T> displacement{nullptr, nullptr, x.rank() - 2, std::max<int64_t>(1, x.dims[1] / offset_groups)};
    ASSIGN_OR_RETURN(T * columns, Scratch<T>(call, g.ColumnElements()));
    const int64_t depth = g.Depth();
    for (int64_t image = 0; image < g.batch * g.groups; ++image) {
      const int64_t n = image / g.groups;
      const int64_t group = image % g.groups;
      displacement.offsets = call.inputs[2].as<T>() + n * call.inputs[2].dims[1] * g.OutSize();
      if (call.Has(4)) displacement.mask = call.inputs[4].as<T>() + n * call.inputs[4].dims[1] * g.OutSize();
      DisplacedColumns(g, displacement, x.as<T>() + image * g.in_channels * g.InSize(), group * g.in_channels, columns);
      const Matrix<const T> weight{w.as<T>() + group * g.out_channels * depth, g.out_channels, depth, depth, 1};
      const Matrix<const T> taps{columns, depth, g.OutSize(), g.OutSize(), 1};
      const Matrix<T> out{y.as<T>() + image * g.out_channels * g.OutSize(), g.out_channels, g.OutSize(), g.OutSize(),
                          1};
      RETURN_IF_ERROR(Gemm(call, weight, taps, out, true));
    }
    return {};
  }
};

}  // namespace

ReferenceKernel DeformConv(DType dtype) {
  return {FloatKernel<DeformConvOf>(dtype), false};
}

}  // namespace kiln::kernels
