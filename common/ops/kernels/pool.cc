// MaxPool, AveragePool, LpPool and the global pools.
#include <algorithm>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"
#include "common/ops/window.h"

namespace kiln::kernels {
namespace {

struct PoolGeometry {
  int64_t planes;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3], pad_end[3];
};

Result<PoolGeometry> MakePoolGeometry(const KernelCall& call) {
  const Dims& x = call.inputs[0].dims;
  const Dims& y = call.outputs[0].dims;
  const int rank = x.rank() - 2;
  if (rank > 3) {
    return Fail(ErrorCode::kUnsupported,
                "pooling over " + std::to_string(rank) + " spatial dims; at most 3 are supported");
  }
  ASSIGN_OR_RETURN(const Window window, ReadWindow(*call.attributes, rank));
  PoolGeometry g{};
  g.planes = x[0] * x[1];
  for (int d = 0; d < 3; ++d) g.in[d] = g.out[d] = g.kernel[d] = g.stride[d] = g.dilation[d] = 1;
  for (int d = 0; d < rank; ++d) {
    const int at = 3 - rank + d;
    g.in[at] = x[d + 2];
    g.out[at] = y[d + 2];
    g.kernel[at] = window.kernel[d];
    g.stride[at] = window.strides[d];
    g.dilation[at] = window.dilations[d];
    g.pad[at] = ResolvedPadBegin(window, d, x[d + 2], y[d + 2]);
    const bool same = window.auto_pad == AutoPad::kSameUpper || window.auto_pad == AutoPad::kSameLower;
    const int64_t total = (g.out[at] - 1) * g.stride[at] + window.Extent(d) - g.in[at];
    g.pad_end[at] = same ? std::max<int64_t>(0, total) - g.pad[at] : window.pads_end[d];
  }
  return g;
}

// The taps of one window along one dim that fall into the input.
struct Taps {
  int64_t start;        // position of tap 0, may lie in the pads
  int64_t first, last;  // taps [first, last) are inside
};
Taps InsideTaps(const PoolGeometry& g, int d, int64_t out) {
  const int64_t start = out * g.stride[d] - g.pad[d];
  const int64_t step = g.dilation[d];
  const int64_t first = start >= 0 ? 0 : (-start + step - 1) / step;
  const int64_t last = start >= g.in[d] ? 0 : (g.in[d] - 1 - start) / step + 1;
  return {start, std::min(first, g.kernel[d]), std::min(last, g.kernel[d])};
}
// Taps that fall into the input or its pads: what AveragePool counts with count_include_pad.
int64_t PaddedTaps(const PoolGeometry& g, int d, int64_t out) {
  const int64_t start = out * g.stride[d] - g.pad[d];
  const int64_t end = g.in[d] + g.pad_end[d];
  return start >= end ? 0 : std::min(g.kernel[d], (end - 1 - start) / g.dilation[d] + 1);
}

// Calls visit(plane, window position in the output, taps per dim) for every output element, in order.
template <class Visit>
void ForEachWindow(const PoolGeometry& g, Visit visit) {
  int64_t at = 0;
  for (int64_t plane = 0; plane < g.planes; ++plane) {
    for (int64_t oz = 0; oz < g.out[0]; ++oz) {
      const Taps z = InsideTaps(g, 0, oz);
      for (int64_t oy = 0; oy < g.out[1]; ++oy) {
        const Taps y = InsideTaps(g, 1, oy);
        for (int64_t ox = 0; ox < g.out[2]; ++ox, ++at) {
          const Taps taps[3] = {z, y, InsideTaps(g, 2, ox)};
          const int64_t out[3] = {oz, oy, ox};
          visit(plane, at, out, taps);
        }
      }
    }
  }
}

// Calls visit(index in the plane) for every input element under a window.
template <class Visit>
void ForEachTap(const PoolGeometry& g, const Taps* taps, Visit visit) {
  for (int64_t kz = taps[0].first; kz < taps[0].last; ++kz) {
    const int64_t iz = taps[0].start + kz * g.dilation[0];
    for (int64_t ky = taps[1].first; ky < taps[1].last; ++ky) {
      const int64_t iy = taps[1].start + ky * g.dilation[1];
      const int64_t row = (iz * g.in[1] + iy) * g.in[2];
      for (int64_t kx = taps[2].first; kx < taps[2].last; ++kx) visit(row + taps[2].start + kx * g.dilation[2]);
    }
  }
}

// Index output: flat over the whole input, in row-major order or, with storage_order 1, column-major in each plane.
int64_t FlatIndex(const PoolGeometry& g, int64_t plane, int64_t index, bool column_major) {
  const int64_t size = g.in[0] * g.in[1] * g.in[2];
  if (!column_major) return plane * size + index;
  const int64_t x = index % g.in[2];
  const int64_t y = index / g.in[2] % g.in[1];
  const int64_t z = index / g.in[2] / g.in[1];
  return plane * size + (x * g.in[1] + y) * g.in[0] + z;
}

struct MaxPoolOf {
  template <class T>
  static Status Run(KernelCall& call) {
    ASSIGN_OR_RETURN(const PoolGeometry g, MakePoolGeometry(call));
    const bool column_major = call.attributes->Int("storage_order", 0) != 0;
    int64_t* indices = Wants(call, 1) ? call.outputs[1].as<int64_t>() : nullptr;
    const T* x = call.inputs[0].as<T>();
    T* y = call.outputs[0].as<T>();
    const int64_t size = g.in[0] * g.in[1] * g.in[2];
    ForEachWindow(g, [&](int64_t plane, int64_t at, const int64_t*, const Taps* taps) {
      T best = std::numeric_limits<T>::lowest();
      if constexpr (std::is_floating_point_v<T>) best = -std::numeric_limits<T>::infinity();
      int64_t best_index = -1;
      const T* from = x + plane * size;
      ForEachTap(g, taps, [&](int64_t index) {
        const T value = from[index];
        bool wins = best_index < 0 || value > best;
        if constexpr (std::is_floating_point_v<T>) wins = !std::isnan(best) && (wins || std::isnan(value));
        if (wins) {
          best = value;
          best_index = index;
        }
      });
      y[at] = best;
      if (indices != nullptr) indices[at] = FlatIndex(g, plane, std::max<int64_t>(best_index, 0), column_major);
    });
    return {};
  }
};

struct AveragePoolOf {
  template <class T>
  static Status Run(KernelCall& call) {
    ASSIGN_OR_RETURN(const PoolGeometry g, MakePoolGeometry(call));
    const bool counts_pads = call.attributes->Int("count_include_pad", 0) != 0;
    const int64_t size = g.in[0] * g.in[1] * g.in[2];
    ForEachWindow(g, [&](int64_t plane, int64_t at, const int64_t* out, const Taps* taps) {
      const T* from = call.inputs[0].as<T>() + plane * size;
      double sum = 0;
      int64_t count = 0;
      ForEachTap(g, taps, [&](int64_t index) {
        sum += from[index];
        ++count;
      });
      if (counts_pads) count = PaddedTaps(g, 0, out[0]) * PaddedTaps(g, 1, out[1]) * PaddedTaps(g, 2, out[2]);
      call.outputs[0].as<T>()[at] = count == 0 ? T(0) : static_cast<T>(sum / static_cast<double>(count));
    });
    return {};
  }
};

struct LpPoolOf {
  template <class T>
  static Status Run(KernelCall& call) {
    ASSIGN_OR_RETURN(const PoolGeometry g, MakePoolGeometry(call));
    const double p = static_cast<double>(call.attributes->Int("p", 2));
    const int64_t size = g.in[0] * g.in[1] * g.in[2];
    ForEachWindow(g, [&](int64_t plane, int64_t at, const int64_t*, const Taps* taps) {
      const T* from = call.inputs[0].as<T>() + plane * size;
      double sum = 0;
      ForEachTap(g, taps, [&](int64_t index) { sum += std::pow(std::fabs(static_cast<double>(from[index])), p); });
      call.outputs[0].as<T>()[at] = static_cast<T>(std::pow(sum, 1.0 / p));
    });
    return {};
  }
};

struct GlobalAverageOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const int64_t planes = call.outputs[0].elements();
    const int64_t size = planes == 0 ? 0 : call.inputs[0].elements() / planes;
    for (int64_t plane = 0; plane < planes; ++plane) {
      double sum = 0;
      for (int64_t i = 0; i < size; ++i) sum += call.inputs[0].as<T>()[plane * size + i];
      call.outputs[0].as<T>()[plane] = static_cast<T>(sum / static_cast<double>(size));
    }
    return {};
  }
};

struct GlobalMaxOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const int64_t planes = call.outputs[0].elements();
    const int64_t size = planes == 0 ? 0 : call.inputs[0].elements() / planes;
    for (int64_t plane = 0; plane < planes; ++plane) {
      T best = -std::numeric_limits<T>::infinity();
      for (int64_t i = 0; i < size; ++i) best = NanMax(best, call.inputs[0].as<T>()[plane * size + i]);
      call.outputs[0].as<T>()[plane] = best;
    }
    return {};
  }
};

}  // namespace

ReferenceKernel MaxPool(DType dtype) {
  if (dtype == DType::kI8) return {&MaxPoolOf::Run<int8_t>, false};
  if (dtype == DType::kU8) return {&MaxPoolOf::Run<uint8_t>, false};
  return {FloatKernel<MaxPoolOf>(dtype), false};
}
ReferenceKernel AveragePool(DType dtype) {
  return {FloatKernel<AveragePoolOf>(dtype), false};
}
ReferenceKernel LpPool(DType dtype) {
  return {FloatKernel<LpPoolOf>(dtype), false};
}
ReferenceKernel GlobalAveragePool(DType dtype) {
  return {FloatKernel<GlobalAverageOf>(dtype), false};
}
ReferenceKernel GlobalMaxPool(DType dtype) {
  return {FloatKernel<GlobalMaxOf>(dtype), false};
}

}  // namespace kiln::kernels
