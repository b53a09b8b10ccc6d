// GridSample and AffineGrid.
#include <algorithm>
#include <cmath>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

enum class SampleMode : uint8_t { kLinear, kNearest, kCubic };
enum class Padding : uint8_t { kZeros, kBorder, kReflection };

struct SampleRules {
  SampleMode mode = SampleMode::kLinear;
  Padding padding = Padding::kZeros;
  bool align_corners = false;
};

Result<SampleRules> ReadSampleRules(const Attributes& attributes) {
  SampleRules rules;
  rules.align_corners = attributes.Int("align_corners", 0) != 0;
  const std::string_view mode = attributes.Text("mode", "linear");
  const std::string_view padding = attributes.Text("padding_mode", "zeros");
  if (mode == "nearest") {
    rules.mode = SampleMode::kNearest;
  } else if (mode == "cubic") {
    rules.mode = SampleMode::kCubic;
  } else if (mode != "linear") {
    return Fail(ErrorCode::kInvalidArgument, "mode '" + std::string(mode) + "' of GridSample is unknown");
  }
  if (padding == "border") {
    rules.padding = Padding::kBorder;
  } else if (padding == "reflection") {
    rules.padding = Padding::kReflection;
  } else if (padding != "zeros") {
    return Fail(ErrorCode::kInvalidArgument, "padding_mode '" + std::string(padding) + "' of GridSample is unknown");
  }
  return rules;
}

// `x` mirrored at both ends until it lies between them.
template <class G>
G Reflect(G x, G low, G high) {
  const G range = high - low;
  if (!(range > 0)) return low;
  const bool below = x < low;
  const G distance = below ? low - x : x - high;
  const G turns = std::floor(distance / range);
  const G rest = distance - turns * range;
  const bool even = std::fmod(turns, G(2)) == 0;
  return below == even ? low + rest : high - rest;
}

// Taps along one dim: up to four input indices, -1 outside, with their weights.
template <class G>
struct AxisTaps {
  int count = 0;
  int64_t index[4];
  G weight[4];
};

template <class G>
AxisTaps<G> TapsOf(const SampleRules& rules, G normalized, int64_t size) {
  const G length = static_cast<G>(size);
  const G low = rules.align_corners ? G(0) : G(-0.5);
  const G high = rules.align_corners ? length - 1 : length - G(0.5);
  G x = rules.align_corners ? (normalized + 1) / 2 * (length - 1) : ((normalized + 1) * length - 1) / 2;
  if (rules.mode == SampleMode::kNearest) x = std::nearbyint(x);
  if (x < low || x > high) {
    if (rules.padding == Padding::kBorder) x = std::clamp(x, G(0), length - 1);
    if (rules.padding == Padding::kReflection) x = Reflect(x, low, high);
  }
  AxisTaps<G> taps;
  // Positions that are no numbers, or farther than any tap reaches, sample nothing.
  if (!(x > -4 && x < length + 4)) return taps;
  const G floor = rules.mode == SampleMode::kNearest ? std::nearbyint(x) : std::floor(x);
  const G t = x - floor;
  int64_t first = static_cast<int64_t>(floor);
  switch (rules.mode) {
    case SampleMode::kNearest:
      taps = {1, {first}, {1}};
      break;
    case SampleMode::kLinear:
      taps = {2, {first, first + 1}, {1 - t, t}};
      break;
    case SampleMode::kCubic: {
      constexpr G kA = G(-0.75);
      const auto near = [](G d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
      const auto far = [](G d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
      taps = {4, {first - 1, first, first + 1, first + 2}, {far(1 + t), near(t), near(1 - t), far(2 - t)}};
      break;
    }
  }
  for (int i = 0; i < taps.count; ++i) {
    int64_t& index = taps.index[i];
    if (index >= 0 && index < size) continue;
    switch (rules.padding) {
      case Padding::kZeros:
        index = -1;
        break;
      case Padding::kBorder:
        index = std::clamp<int64_t>(index, 0, size - 1);
        break;
      case Padding::kReflection:
        index = std::clamp<int64_t>(static_cast<int64_t>(Reflect(static_cast<G>(index), low, high)), 0, size - 1);
        break;
    }
  }
  return taps;
}

// Sum over the taps of dims [d, rank) of the plane that starts at `x`. A double image keeps its precision whatever the
// grid's type.
template <class T, class G>
using SampleSum = std::conditional_t<std::is_same_v<T, double>, double, G>;
template <class T, class G>
SampleSum<T, G> Interpolate(const T* x, const Dims& sizes, const AxisTaps<G>* taps, int d) {
  if (d == sizes.rank()) return static_cast<SampleSum<T, G>>(Load(*x));
  int64_t stride = 1;
  for (int i = d + 1; i < sizes.rank(); ++i) stride *= sizes[i];
  SampleSum<T, G> sum = 0;
  for (int i = 0; i < taps[d].count; ++i) {
    if (taps[d].index[i] < 0) continue;
    sum += taps[d].weight[i] * Interpolate<T, G>(x + taps[d].index[i] * stride, sizes, taps, d + 1);
  }
  return sum;
}

// The element of nearest sampling, unchanged whatever its type.
template <class T, class G>
T Nearest(const T* x, const Dims& sizes, const AxisTaps<G>* taps) {
  int64_t offset = 0;
  for (int d = 0; d < sizes.rank(); ++d) {
    if (taps[d].count == 0 || taps[d].index[0] < 0) return T{};
    offset = offset * sizes[d] + taps[d].index[0];
  }
  return x[offset];
}

// G is what positions are computed in; T the elements' type.
template <class T, class Grid>
Status Sample(KernelCall& call) {
  using G = Compute<Grid>;
  const TensorRef& in = call.inputs[0];
  const TensorRef& grid = call.inputs[1];
  const TensorRef& out = call.outputs[0];
  ASSIGN_OR_RETURN(const SampleRules rules, ReadSampleRules(*call.attributes));
  const int rank = in.rank() - 2;
  Dims sizes = Dims::Filled(rank, 0);
  for (int d = 0; d < rank; ++d) sizes[d] = in.dims[d + 2];
  const int64_t plane = NumElements(sizes);
  if (out.elements() == 0) return {};
  if (plane == 0) return Fail(ErrorCode::kShapeMismatch, "GridSample of an empty image " + in.dims.ToString());
  const int64_t channels = in.dims[1];
  const int64_t points = out.elements() / (in.dims[0] * channels);
  AxisTaps<G> taps[limits::kRankMax];
  for (int64_t n = 0; n < in.dims[0]; ++n) {
    for (int64_t p = 0; p < points; ++p) {
      const Grid* position = grid.as<Grid>() + (n * points + p) * rank;
      // The grid holds x first, which is the last dim.
      for (int d = 0; d < rank; ++d) taps[d] = TapsOf<G>(rules, Load(position[rank - 1 - d]), sizes[d]);
      for (int64_t c = 0; c < channels; ++c) {
        const T* x = in.as<T>() + (n * channels + c) * plane;
        T& y = out.as<T>()[(n * channels + c) * points + p];
        if (rules.mode == SampleMode::kNearest) {
          y = Nearest(x, sizes, taps);
        } else {
          y = Convert<T>(Interpolate<T, G>(x, sizes, taps, 0));
        }
      }
    }
  }
  return {};
}

template <class T>
Status RunGridSample(KernelCall& call) {
  return DispatchDType(call.inputs[1].dtype, [&]<class Grid>() -> Status {
    if constexpr (kIsFloat<Grid>) {
      return Sample<T, Grid>(call);
    } else {
      return UnsupportedType(call.inputs[1].dtype);
    }
  });
}

// Centres (or, aligned, corners) of `size` cells over [-1, 1].
double CellPosition(int64_t i, int64_t size, bool align_corners) {
  if (align_corners) {
    return size == 1 ? 0.0 : -1.0 + 2.0 * static_cast<double>(i) / static_cast<double>(size - 1);
  }
  return (2.0 * static_cast<double>(i) + 1.0) / static_cast<double>(size) - 1.0;
}

struct AffineGridOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& theta = call.inputs[0];
    const TensorRef& out = call.outputs[0];
    const bool align_corners = call.attributes->Int("align_corners", 0) != 0;
    const int rank = out.rank() - 2;
    Dims sizes = Dims::Filled(rank, 0);
    for (int d = 0; d < rank; ++d) sizes[d] = out.dims[d + 1];
    const int64_t points = NumElements(sizes);
    T* y = out.as<T>();
    for (int64_t n = 0; n < out.dims[0]; ++n) {
      const T* map = theta.as<T>() + n * rank * (rank + 1);
      for (int64_t p = 0; p < points; ++p) {
        double position[3];  // x first
        int64_t rest = p;
        for (int d = rank - 1; d >= 0; --d) {
          position[rank - 1 - d] = CellPosition(rest % sizes[d], sizes[d], align_corners);
          rest /= sizes[d];
        }
        for (int row = 0; row < rank; ++row) {
          double sum = map[row * (rank + 1) + rank];
          for (int d = 0; d < rank; ++d) sum += static_cast<double>(map[row * (rank + 1) + d]) * position[d];
          *y++ = static_cast<T>(sum);
        }
      }
    }
    return {};
  }
};

}  // namespace

ReferenceKernel GridSample(DType dtype) {
  return {DispatchDType(dtype, []<class T>() -> KernelFunction { return &RunGridSample<T>; }), false};
}
ReferenceKernel AffineGrid(DType dtype) {
  return {FloatKernel<AffineGridOf>(dtype), false};
}

}  // namespace kiln::kernels
