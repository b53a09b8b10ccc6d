// Geometry of convolutions, widened to three spatial dims, and the im2col both float and integer convolutions use.
#pragma once

#include "common/ops/kernels/kernel.h"
#include "common/ops/window.h"

namespace kiln::kernels {

struct ConvGeometry {
  int64_t batch, groups;
  int64_t in_channels, out_channels;  // per group
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];

  int64_t InSize() const { return in[0] * in[1] * in[2]; }
  int64_t OutSize() const { return out[0] * out[1] * out[2]; }
  int64_t KernelSize() const { return kernel[0] * kernel[1] * kernel[2]; }
  // Rows of the im2col matrix, and its elements: saturated, so that scratch of that size is refused.
  int64_t Depth() const { return in_channels * KernelSize(); }
  int64_t ColumnElements() const { return CheckedMul(Depth(), OutSize()).value_or(INT64_MAX); }
  // A 1x1 kernel that steps by one without pads reads the input as it lies.
  bool IsPointwise() const;
};

// `x` and `y` have dims N, C, spatial…; `weight` has its spatial dims from dim 2 on. Unsupported beyond three spatial
// dims.
Result<ConvGeometry> MakeConvGeometry(const Attributes& attributes, const Dims& x, const Dims& y, const Dims& weight);

// Columns of one group of one image: row (c, kz, ky, kx), column (oz, oy, ox); positions in the pads are `fill`.
template <class T>
void Im2Col(const ConvGeometry& g, const T* x, T fill, T* columns) {
  for (int64_t c = 0; c < g.in_channels; ++c, x += g.InSize()) {
    for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
      for (int64_t ky = 0; ky < g.kernel[1]; ++ky) {
        for (int64_t kx = 0; kx < g.kernel[2]; ++kx) {
          for (int64_t oz = 0; oz < g.out[0]; ++oz) {
            const int64_t iz = oz * g.stride[0] + kz * g.dilation[0] - g.pad[0];
            for (int64_t oy = 0; oy < g.out[1]; ++oy) {
              const int64_t iy = oy * g.stride[1] + ky * g.dilation[1] - g.pad[1];
              const bool row_inside = iz >= 0 && iz < g.in[0] && iy >= 0 && iy < g.in[1];
              const T* row = row_inside ? x + (iz * g.in[1] + iy) * g.in[2] : nullptr;
              int64_t ix = kx * g.dilation[2] - g.pad[2];
              for (int64_t ox = 0; ox < g.out[2]; ++ox, ix += g.stride[2]) {
                *columns++ = row_inside && ix >= 0 && ix < g.in[2] ? row[ix] : fill;
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace kiln::kernels
