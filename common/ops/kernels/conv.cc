// Conv and ConvTranspose: im2col and a matrix product per group; depthwise kernels by direct loops.
#include "common/ops/kernels/conv.h"

#include <algorithm>

#include "common/ops/kernels/gemm.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {

bool ConvGeometry::IsPointwise() const {
  for (int d = 0; d < 3; ++d) {
    if (kernel[d] != 1 || stride[d] != 1 || pad[d] != 0 || in[d] != out[d]) return false;
  }
  return true;
}

Result<ConvGeometry> MakeConvGeometry(const Attributes& attributes, const Dims& x, const Dims& y, const Dims& weight) {
  const int rank = x.rank() - 2;
  if (rank > 3) {
    return Fail(ErrorCode::kUnsupported,
                "convolution over " + std::to_string(rank) + " spatial dims; at most 3 are supported");
  }
  ASSIGN_OR_RETURN(Window window, ReadWindow(attributes, rank));
  ConvGeometry g{};
  g.batch = x[0];
  g.groups = attributes.Int("depthwise", 0) != 0 ? std::max<int64_t>(x[1], 1) : attributes.Int("group", 1);
  g.in_channels = x[1] / g.groups;
  g.out_channels = y[1] / g.groups;
  for (int d = 0; d < 3; ++d) {
    g.in[d] = g.out[d] = g.kernel[d] = g.stride[d] = g.dilation[d] = 1;
    g.pad[d] = 0;
  }
  for (int d = 0; d < rank; ++d) {
    const int at = 3 - rank + d;
    window.kernel[d] = weight[d + 2];
    g.in[at] = x[d + 2];
    g.out[at] = y[d + 2];
    g.kernel[at] = window.kernel[d];
    g.stride[at] = window.strides[d];
    g.dilation[at] = window.dilations[d];
    g.pad[at] = ResolvedPadBegin(window, d, x[d + 2], y[d + 2]);
  }
  return g;
}

namespace {

template <class T>
void FillBias(const KernelCall& call, size_t input, T* y, int64_t channels, int64_t size, int64_t batch) {
  const T* bias = call.Has(input) ? call.inputs[input].as<T>() : nullptr;
  for (int64_t row = 0; row < batch * channels; ++row) {
    std::fill_n(y + row * size, size, bias == nullptr ? T(0) : bias[row % channels]);
  }
}

// First and one-past-last output position whose tap `k` falls into the input.
struct TapRange {
  int64_t first, last;
};
TapRange InsideTap(const ConvGeometry& g, int d, int64_t k) {
  const int64_t offset = k * g.dilation[d] - g.pad[d];
  const int64_t first = offset >= 0 ? 0 : (-offset + g.stride[d] - 1) / g.stride[d];
  const int64_t room = g.in[d] - 1 - offset;
  const int64_t last = room < 0 ? 0 : room / g.stride[d] + 1;
  return {std::min(first, g.out[d]), std::min(last, g.out[d])};
}

// One input plane convolved with one kernel plane, added to one output plane.
template <class T>
void AddPlane(const ConvGeometry& g, const T* x, const T* w, T* y) {
  for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
    const TapRange z = InsideTap(g, 0, kz);
    for (int64_t ky = 0; ky < g.kernel[1]; ++ky) {
      const TapRange v = InsideTap(g, 1, ky);
      for (int64_t kx = 0; kx < g.kernel[2]; ++kx) {
        const TapRange h = InsideTap(g, 2, kx);
        const T weight = w[(kz * g.kernel[1] + ky) * g.kernel[2] + kx];
        for (int64_t oz = z.first; oz < z.last; ++oz) {
          const int64_t iz = oz * g.stride[0] + kz * g.dilation[0] - g.pad[0];
          for (int64_t oy = v.first; oy < v.last; ++oy) {
            const int64_t iy = oy * g.stride[1] + ky * g.dilation[1] - g.pad[1];
            const T* from = x + (iz * g.in[1] + iy) * g.in[2] + kx * g.dilation[2] - g.pad[2];
            T* to = y + (oz * g.out[1] + oy) * g.out[2];
            if (g.stride[2] == 1) {
              for (int64_t ox = h.first; ox < h.last; ++ox) to[ox] += weight * from[ox];
            } else {
              for (int64_t ox = h.first; ox < h.last; ++ox) to[ox] += weight * from[ox * g.stride[2]];
            }
          }
        }
      }
    }
  }
}

struct ConvOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& x = call.inputs[0];
    const TensorRef& w = call.inputs[1];
    const TensorRef& y = call.outputs[0];
    ASSIGN_OR_RETURN(const ConvGeometry g, MakeConvGeometry(*call.attributes, x.dims, y.dims, w.dims));
    if (y.elements() == 0) return {};
    FillBias(call, 2, y.as<T>(), g.out_channels * g.groups, g.OutSize(), g.batch);
    if (g.in_channels == 1 && g.groups > 1) {
      Depthwise(g, x.as<T>(), w.as<T>(), y.as<T>());
      return {};
    }
    const int64_t depth = g.Depth();
    T* columns = nullptr;
    if (!g.IsPointwise()) {
      ASSIGN_OR_RETURN(columns, Scratch<T>(call, g.ColumnElements()));
    }
    for (int64_t image = 0; image < g.batch * g.groups; ++image) {
      const int64_t group = image % g.groups;
      const T* from = x.as<T>() + image * g.in_channels * g.InSize();
      if (columns != nullptr) Im2Col(g, from, T(0), columns);
      const Matrix<const T> weight{w.as<T>() + group * g.out_channels * depth, g.out_channels, depth, depth, 1};
      const Matrix<const T> taps{columns == nullptr ? from : columns, depth, g.OutSize(), g.OutSize(), 1};
      const Matrix<T> out{y.as<T>() + image * g.out_channels * g.OutSize(), g.out_channels, g.OutSize(), g.OutSize(),
                          1};
      RETURN_IF_ERROR(Gemm(call, weight, taps, out, true));
    }
    return {};
  }

  template <class T>
  static void Depthwise(const ConvGeometry& g, const T* x, const T* w, T* y) {
    const int64_t channels = g.out_channels * g.groups;
    for (int64_t row = 0; row < g.batch * channels; ++row) {
      const int64_t image = row / channels;
      const int64_t channel = row % channels;
      const T* from = x + (image * g.groups + channel / g.out_channels) * g.InSize();
      AddPlane(g, from, w + channel * g.KernelSize(), y + row * g.OutSize());
    }
  }
};

// The geometry of the convolution whose gradient a transposed one is: its input is our output.
Result<ConvGeometry> MakeTransposedGeometry(const Attributes& attributes, const Dims& x, const Dims& y,
                                            const Dims& weight) {
  const int rank = x.rank() - 2;
  ASSIGN_OR_RETURN(ConvGeometry g, MakeConvGeometry(attributes, y, x, weight));
  ASSIGN_OR_RETURN(Window window, ReadWindow(attributes, rank));
  const bool has_shape = !attributes.Ints("output_shape").empty();
  const std::span<const int64_t> extra = attributes.Ints("output_padding");
  for (int d = 0; d < rank; ++d) {
    const int at = 3 - rank + d;
    window.kernel[d] = weight[d + 2];
    g.pad[at] = window.pads_begin[d];
    if (!has_shape && window.auto_pad != AutoPad::kSameUpper && window.auto_pad != AutoPad::kSameLower) continue;
    // Pads follow from the wanted size; the odd one goes to the end, to the front for SAME_LOWER.
    // Dims of an empty tensor are not bounded by what memory holds, so this is wider than they are.
    const __int128 reach = static_cast<__int128>(x[d + 2] - 1) * window.strides[d] + window.Extent(d) +
                           (extra.empty() ? 0 : extra[static_cast<size_t>(d)]) - y[d + 2];
    const int64_t total = static_cast<int64_t>(std::clamp<__int128>(reach, INT64_MIN / 2, INT64_MAX / 2));
    const int64_t half = FloorDiv(total, 2);
    g.pad[at] = window.auto_pad == AutoPad::kSameUpper ? half : total - half;
    if (total < 0) g.pad[at] = 0;
  }
  return g;
}

// Scatters columns (c, kz, ky, kx) x (oz, oy, ox) back into the planes they came from.
template <class T>
void AddColumns(const ConvGeometry& g, const T* columns, T* y) {
  for (int64_t c = 0; c < g.in_channels; ++c, y += g.InSize()) {
    for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
      for (int64_t ky = 0; ky < g.kernel[1]; ++ky) {
        for (int64_t kx = 0; kx < g.kernel[2]; ++kx, columns += g.OutSize()) {
          const TapRange z = InsideTap(g, 0, kz);
          const TapRange v = InsideTap(g, 1, ky);
          const TapRange h = InsideTap(g, 2, kx);
          for (int64_t oz = z.first; oz < z.last; ++oz) {
            const int64_t iz = oz * g.stride[0] + kz * g.dilation[0] - g.pad[0];
            for (int64_t oy = v.first; oy < v.last; ++oy) {
              const int64_t iy = oy * g.stride[1] + ky * g.dilation[1] - g.pad[1];
              T* to = y + (iz * g.in[1] + iy) * g.in[2] + kx * g.dilation[2] - g.pad[2];
              const T* from = columns + (oz * g.out[1] + oy) * g.out[2];
              for (int64_t ox = h.first; ox < h.last; ++ox) to[ox * g.stride[2]] += from[ox];
            }
          }
        }
      }
    }
  }
}

struct ConvTransposeOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& x = call.inputs[0];
    const TensorRef& w = call.inputs[1];
    const TensorRef& y = call.outputs[0];
    ASSIGN_OR_RETURN(const ConvGeometry g, MakeTransposedGeometry(*call.attributes, x.dims, y.dims, w.dims));
    if (y.elements() == 0) return {};
    FillBias(call, 2, y.as<T>(), g.in_channels * g.groups, g.InSize(), g.batch);
    const int64_t depth = g.Depth();
    ASSIGN_OR_RETURN(T * columns, Scratch<T>(call, g.ColumnElements()));
    for (int64_t image = 0; image < g.batch * g.groups; ++image) {
      const int64_t group = image % g.groups;
      // w is [channels of x, depth] per group; columns = w^T * x.
      const Matrix<const T> weight{w.as<T>() + group * g.out_channels * depth, depth, g.out_channels, 1, depth};
      const Matrix<const T> from{x.as<T>() + image * g.out_channels * g.OutSize(), g.out_channels, g.OutSize(),
                                 g.OutSize(), 1};
      RETURN_IF_ERROR(Gemm(call, weight, from, Matrix<T>{columns, depth, g.OutSize(), g.OutSize(), 1}, false));
      AddColumns(g, columns, y.as<T>() + image * g.in_channels * g.InSize());
    }
    return {};
  }
};

}  // namespace

ReferenceKernel Conv(DType dtype) {
  return {FloatKernel<ConvOf>(dtype), false};
}
ReferenceKernel ConvTranspose(DType dtype) {
  return {FloatKernel<ConvTransposeOf>(dtype), false};
}

}  // namespace kiln::kernels
