// Resize: separable interpolation, one axis after another, or nearest by lookup. Positions are computed in float, as
// the format's scales are: nearest modes and whole results of integers jump with the last bit of a position.
#include <algorithm>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/operands.h"
#include "common/ops/kernels/table.h"
#include "common/ops/resize_rules.h"
#include "common/ops/resize_scales.h"

namespace kiln::kernels {
namespace {

using Coordinates = ResizeCoordinates;
using Rounding = ResizeRounding;

struct ResizeAxis {
  int64_t in = 1, out = 1;
  float scale = 1;
  float roi_begin = 0, roi_end = 1;
  bool named = false;  // by attribute `axes`; others stay as they are
};

// Position in the input that output `at` shows.
float SourcePosition(const ResizeRules& rules, const ResizeAxis& axis, int64_t at) {
  const float x = static_cast<float>(at);
  const float in = static_cast<float>(axis.in);
  const float out = static_cast<float>(axis.out);
  switch (rules.coordinates) {
    case Coordinates::kHalfPixel:
      return (x + 0.5f) / axis.scale - 0.5f;
    case Coordinates::kHalfPixelSymmetric: {
      const float adjustment = out / (axis.scale * in);
      return in / 2 * (1 - adjustment) + (x + 0.5f) / axis.scale - 0.5f;
    }
    case Coordinates::kPytorchHalfPixel:
      return axis.out > 1 ? (x + 0.5f) / axis.scale - 0.5f : 0.0f;
    case Coordinates::kAlignCorners:
      return axis.out > 1 ? x * (in - 1) / (out - 1) : 0.0f;
    case Coordinates::kAsymmetric:
      return x / axis.scale;
    case Coordinates::kCropAndResize:
      if (axis.out > 1) {
        return axis.roi_begin * (in - 1) + x * (axis.roi_end - axis.roi_begin) * (in - 1) / (out - 1);
      }
      return 0.5f * (axis.roi_begin + axis.roi_end) * (in - 1);
    case Coordinates::kTfHalfPixelForNn:
      return (x + 0.5f) / axis.scale;
  }
  return x;
}

int64_t NearestIndex(Rounding rounding, double position, const ResizeAxis& axis) {
  double rounded = 0;
  switch (rounding) {
    case Rounding::kRoundPreferFloor:
      rounded = std::ceil(position - 0.5);
      break;
    case Rounding::kRoundPreferCeil:
      rounded = std::floor(position + 0.5);
      break;
    case Rounding::kFloor:
      rounded = std::floor(position);
      break;
    case Rounding::kCeil:
      rounded = std::ceil(position);
      break;
    case Rounding::kCeilWhenShrinking:
      rounded = axis.scale < 1 ? std::ceil(position) : std::floor(position);
      break;
  }
  return std::clamp<int64_t>(Convert<int64_t>(rounded), 0, axis.in - 1);
}

double CubicWeight(double a, double distance) {
  const double d = std::fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  return 0;
}

// Taps of one output position: `count` input elements from `first` on (before clamping) with their weights.
struct TapWeights {
  int64_t first = 0;
  List<double> weights;
  bool outside = false;  // shows the extrapolation value
};

TapWeights TapsAt(const ResizeRules& rules, const ResizeAxis& axis, int64_t at) {
  TapWeights taps;
  const double position = SourcePosition(rules, axis, at);
  const bool crops = rules.coordinates == Coordinates::kCropAndResize;
  taps.outside = crops && (position < 0 || position > static_cast<double>(axis.in - 1));
  if (rules.mode == ResizeMode::kNearest) {
    taps.first = NearestIndex(rules.rounding, position, axis);
    taps.weights = {1.0};
    return taps;
  }
  const double radius = rules.mode == ResizeMode::kLinear ? 1.0 : 2.0;
  // Antialiasing widens the kernel when the output is smaller.
  const double shrink = rules.antialias && axis.scale < 1 ? static_cast<double>(axis.scale) : 1.0;
  const double reach = radius / shrink;
  const double floor = std::floor(position);
  const int64_t begin = static_cast<int64_t>(shrink < 1 ? std::ceil(position - reach) : floor - (radius - 1));
  const int64_t end = static_cast<int64_t>(shrink < 1 ? std::floor(position + reach) : floor + radius);
  taps.first = begin;
  double sum = 0;
  for (int64_t i = begin; i <= end; ++i) {
    const double distance = (static_cast<double>(i) - position) * shrink;
    double weight = rules.mode == ResizeMode::kLinear ? std::max(0.0, 1.0 - std::fabs(distance))
                                                      : CubicWeight(rules.cubic, distance);
    if (rules.exclude_outside && (i < 0 || i >= axis.in)) weight = 0;
    taps.weights.push_back(weight);
    sum += weight;
  }
  if ((rules.exclude_outside || shrink < 1) && sum != 0) {
    for (double& weight : taps.weights) weight /= sum;
  }
  return taps;
}

Result<List<ResizeAxis>> ReadAxes(const KernelCall& call) {
  const TensorRef& in = call.inputs[0];
  const TensorRef& out = call.outputs[0];
  List<ResizeAxis> result(in.dims.size());
  for (int d = 0; d < in.rank(); ++d) {
    result[static_cast<size_t>(d)].in = in.dims[d];
    result[static_cast<size_t>(d)].out = out.dims[d];
  }
  ASSIGN_OR_RETURN(const List<int> axes, ResizeAxes(*call.attributes, in.rank()));
  const List<double> roi = call.Has(1) ? FloatsOf(call.inputs[1]) : List<double>();
  const List<double> scales = call.Has(2) ? FloatsOf(call.inputs[2]) : List<double>();
  const List<int64_t> sizes = call.Has(3) ? IntsOf(call.inputs[3]) : List<int64_t>();
  double aspect = 0;
  if (!sizes.empty() && call.attributes->Text("keep_aspect_ratio_policy", "stretch") != "stretch") {
    List<int64_t> from;
    for (const int axis : axes) from.push_back(in.dims[axis]);
    aspect = KeepAspect(*call.attributes, from, sizes).scale;
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    ResizeAxis& axis = result[static_cast<size_t>(axes[i])];
    axis.named = true;
    if (aspect != 0) {
      axis.scale = static_cast<float>(aspect);
    } else if (sizes.empty() && i < scales.size()) {
      axis.scale = static_cast<float>(scales[i]);
    } else {
      axis.scale = axis.in == 0 ? 1.0f : static_cast<float>(axis.out) / static_cast<float>(axis.in);
    }
    if (roi.size() == axes.size() * 2) {
      axis.roi_begin = static_cast<float>(roi[i]);
      axis.roi_end = static_cast<float>(roi[i + axes.size()]);
    }
  }
  return result;
}

// Interpolates along one axis; all other dims are kept.
template <class T>
void ResizeAlong(const ResizeRules& rules, const ResizeAxis& axis, const AxisSplit& split, const T* x, T* y) {
  for (int64_t at = 0; at < axis.out; ++at) {
    const TapWeights taps = TapsAt(rules, axis, at);
    for (int64_t outer = 0; outer < split.outer; ++outer) {
      const T* from = x + outer * axis.in * split.inner;
      T* to = y + (outer * axis.out + at) * split.inner;
      if (taps.weights.size() == 1 && !taps.outside) {
        std::copy_n(from + taps.first * split.inner, split.inner, to);
        continue;
      }
      for (int64_t inner = 0; inner < split.inner; ++inner) {
        double sum = taps.outside ? rules.extrapolation : 0.0;
        for (size_t k = 0; k < taps.weights.size() && !taps.outside; ++k) {
          const int64_t index = std::clamp<int64_t>(taps.first + static_cast<int64_t>(k), 0, axis.in - 1);
          if (taps.weights[k] != 0) sum += taps.weights[k] * static_cast<double>(from[index * split.inner + inner]);
        }
        to[inner] = Convert<T>(sum);
      }
    }
  }
}

// Resizes `from`, which has the dims of the input, axis by axis; the result is scratch, or `from` itself.
template <class W>
Result<const W*> ResizeAxisByAxis(KernelCall& call, const ResizeRules& rules, const List<ResizeAxis>& axes,
                                  const W* from) {
  Dims dims = call.inputs[0].dims;
  for (int d = 0; d < dims.rank(); ++d) {
    const ResizeAxis& axis = axes[static_cast<size_t>(d)];
    const bool crops = rules.coordinates == Coordinates::kCropAndResize && (axis.roi_begin != 0 || axis.roi_end != 1);
    const bool shifts = rules.coordinates == Coordinates::kTfHalfPixelForNn;
    if (!axis.named || (axis.in == axis.out && axis.scale == 1.0f && !crops && !shifts)) continue;
    const AxisSplit split = SplitAt(dims, d);
    dims[d] = axis.out;
    ASSIGN_OR_RETURN(W * to, Scratch<W>(call, NumElements(dims)));
    ResizeAlong(rules, axis, split, from, to);
    from = to;
  }
  return from;
}

// What an integer result is of an interpolated value. The format leaves it open. Linear ones are cut off, as
// onnxruntime does; cubic and antialiased ones, which it lacks or rounds along the way, go to the nearest integer,
// halves to the even one, as the format's reference implementation does. Both saturate. A value that is whole in float
// counts as whole: how positions and weights round does not show.
template <class T>
T WholeResult(const ResizeRules& rules, double value) {
  if (rules.mode != ResizeMode::kLinear || rules.antialias) return Convert<T>(std::nearbyint(value));
  constexpr double kExactInFloat = 1 << 24;
  return Convert<T>(std::fabs(value) < kExactInFloat ? static_cast<double>(static_cast<float>(value)) : value);
}

struct ResizeOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& in = call.inputs[0];
    const TensorRef& out = call.outputs[0];
    ASSIGN_OR_RETURN(const ResizeRules rules, ReadResizeRules(*call.attributes));
    ASSIGN_OR_RETURN(const List<ResizeAxis> axes, ReadAxes(call));
    if (out.elements() == 0) return {};
    if (in.elements() == 0)
      return Fail(ErrorCode::kShapeMismatch, "Resize of an empty tensor to " + out.dims.ToString());
    if constexpr (kIsInteger<T>) {
      if (rules.mode != ResizeMode::kNearest) return Interpolate<T>(call, rules, axes);
    }
    ASSIGN_OR_RETURN(const T* result, ResizeAxisByAxis(call, rules, axes, in.as<T>()));
    std::copy_n(result, out.elements(), out.as<T>());
    return {};
  }

  // Integers are interpolated over all axes before they become integers again.
  template <class T>
  static Status Interpolate(KernelCall& call, const ResizeRules& rules, const List<ResizeAxis>& axes) {
    const TensorRef& in = call.inputs[0];
    const TensorRef& out = call.outputs[0];
    ASSIGN_OR_RETURN(double* wide, Scratch<double>(call, in.elements()));
    std::transform(in.as<T>(), in.as<T>() + in.elements(), wide, [](T value) { return static_cast<double>(value); });
    ASSIGN_OR_RETURN(const double* result, ResizeAxisByAxis<double>(call, rules, axes, wide));
    std::transform(result, result + out.elements(), out.as<T>(),
                   [&](double value) { return WholeResult<T>(rules, value); });
    return {};
  }
};

}  // namespace

ReferenceKernel Resize(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsHalf<T>) {
                            return &ViaFloat<&ResizeOf::Run<float>>;
                          } else if constexpr (kIsNumeric<T>) {
                            return &ResizeOf::Run<T>;
                          } else {
                            return nullptr;
                          }
                        }),
          false};
}

}  // namespace kiln::kernels
