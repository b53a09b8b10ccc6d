// Batch, layer, instance, group, RMS and mean-variance normalisation. Statistics are gathered in double.
#include <algorithm>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/operands.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

struct Moments {
  double mean = 0;
  double variance = 0;
};
template <class T>
Moments MomentsOf(const T* x, int64_t n) {
  Moments moments;
  if (n == 0) return moments;
  for (int64_t i = 0; i < n; ++i) moments.mean += x[i];
  moments.mean /= static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    const double d = x[i] - moments.mean;
    moments.variance += d * d;
  }
  moments.variance /= static_cast<double>(n);
  return moments;
}

// Half-precision inputs may come with float parameters; by here all halves are float, and f64 calls have f64
// parameters.
template <class T>
Result<const T*> Parameter(KernelCall& call, size_t input, const Dims& dims) {
  const TensorRef& ref = call.inputs[input];
  if (ref.dtype == DType::kF32 && std::is_same_v<T, float> && ref.dims == dims && ref.IsContiguous()) {
    return static_cast<const T*>(ref.as<T>());
  }
  ASSIGN_OR_RETURN(T * copy, Scratch<T>(call, NumElements(dims)));
  const List<double> values = FloatsOf(BroadcastRef(ref, dims));
  std::transform(values.begin(), values.end(), copy, [](double value) { return static_cast<T>(value); });
  return static_cast<const T*>(copy);
}

struct BatchNormalizationOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& in = call.inputs[0];
    const double epsilon = call.attributes->Float("epsilon", 1e-5);
    const AxisSplit split = in.rank() > 1 ? SplitAt(in.dims, 1) : AxisSplit{in.dims[0], 1, 1};
    const T* parameters[4];
    for (size_t i = 0; i < 4; ++i) {
      ASSIGN_OR_RETURN(parameters[i], Parameter<T>(call, i + 1, call.inputs[i + 1].dims));
    }
    for (int64_t row = 0; row < split.outer * split.size; ++row) {
      const int64_t c = row % split.size;
      const double scale = parameters[0][c] / std::sqrt(parameters[3][c] + epsilon);
      const T a = static_cast<T>(scale);
      const T b = static_cast<T>(parameters[1][c] - scale * parameters[2][c]);
      const T* x = in.as<T>() + row * split.inner;
      T* y = call.outputs[0].as<T>() + row * split.inner;
      for (int64_t i = 0; i < split.inner; ++i) y[i] = x[i] * a + b;
    }
    return {};
  }
};

// Dims from `axis` on, to which scale and bias broadcast.
Dims TailDims(const Dims& dims, int axis) {
  return Dims(dims.span().subspan(static_cast<size_t>(axis)));
}

template <class T>
void StoreStatistic(KernelCall& call, size_t output, int64_t at, double value) {
  if (!Wants(call, output)) return;
  if (call.outputs[output].dtype == DType::kF64) {
    call.outputs[output].as<double>()[at] = value;
  } else {
    call.outputs[output].as<float>()[at] = static_cast<float>(value);
  }
}

struct LayerNormalizationOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& in = call.inputs[0];
    const double epsilon = call.attributes->Float("epsilon", 1e-5);
    ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", -1), in.rank()));
    // A scale with dims before `axis` varies by row as well: it is stretched to the whole input.
    const bool by_row =
        call.inputs[1].rank() > in.rank() - axis || (call.Has(2) && call.inputs[2].rank() > in.rank() - axis);
    const Dims dims = by_row ? in.dims : TailDims(in.dims, axis);
    const int64_t n = NumElements(TailDims(in.dims, axis));
    const int64_t rows = n == 0 ? 0 : in.elements() / n;
    ASSIGN_OR_RETURN(const T* scale, Parameter<T>(call, 1, dims));
    const T* bias = nullptr;
    if (call.Has(2)) {
      ASSIGN_OR_RETURN(bias, Parameter<T>(call, 2, dims));
    }
    for (int64_t row = 0; row < rows; ++row) {
      const T* x = in.as<T>() + row * n;
      T* y = call.outputs[0].as<T>() + row * n;
      const Moments moments = MomentsOf(x, n);
      const double inverse = 1.0 / std::sqrt(moments.variance + epsilon);
      const int64_t offset = by_row ? row * n : 0;
      const T mean = static_cast<T>(moments.mean);
      const T factor = static_cast<T>(inverse);
      for (int64_t i = 0; i < n; ++i) {
        const T value = (x[i] - mean) * factor * scale[offset + i];
        y[i] = bias == nullptr ? value : value + bias[offset + i];
      }
      StoreStatistic<T>(call, 1, row, moments.mean);
      StoreStatistic<T>(call, 2, row, inverse);
    }
    return {};
  }
};

struct RMSNormalizationOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& in = call.inputs[0];
    const double epsilon = call.attributes->Float("epsilon", 1e-5);
    ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", -1), in.rank()));
    const bool by_row = call.inputs[1].rank() > in.rank() - axis;
    const int64_t n = NumElements(TailDims(in.dims, axis));
    const int64_t rows = n == 0 ? 0 : in.elements() / n;
    ASSIGN_OR_RETURN(const T* scale, Parameter<T>(call, 1, by_row ? in.dims : TailDims(in.dims, axis)));
    for (int64_t row = 0; row < rows; ++row) {
      const T* x = in.as<T>() + row * n;
      T* y = call.outputs[0].as<T>() + row * n;
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      const T factor = static_cast<T>(1.0 / std::sqrt(sum / static_cast<double>(n) + epsilon));
      const int64_t offset = by_row ? row * n : 0;
      for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor * scale[offset + i];
    }
    return {};
  }
};

// Rows of `groups` per batch entry are normalised; scale and bias are per channel.
template <class T>
Status NormalizeGroups(KernelCall& call, int64_t groups) {
  const TensorRef& in = call.inputs[0];
  const double epsilon = call.attributes->Float("epsilon", 1e-5);
  const AxisSplit split = SplitAt(in.dims, 1);
  const int64_t channels = split.size / groups;
  const int64_t n = channels * split.inner;
  ASSIGN_OR_RETURN(const T* scale, Parameter<T>(call, 1, call.inputs[1].dims));
  ASSIGN_OR_RETURN(const T* bias, Parameter<T>(call, 2, call.inputs[2].dims));
  for (int64_t row = 0; row < split.outer * groups; ++row) {
    const T* x = in.as<T>() + row * n;
    T* y = call.outputs[0].as<T>() + row * n;
    const Moments moments = MomentsOf(x, n);
    const T mean = static_cast<T>(moments.mean);
    const T factor = static_cast<T>(1.0 / std::sqrt(moments.variance + epsilon));
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t channel = row % groups * channels + c;
      for (int64_t i = c * split.inner; i < (c + 1) * split.inner; ++i)
        y[i] = (x[i] - mean) * factor * scale[channel] + bias[channel];
    }
  }
  return {};
}

struct InstanceNormalizationOf {
  template <class T>
  static Status Run(KernelCall& call) {
    return NormalizeGroups<T>(call, call.inputs[0].dims[1]);
  }
};
struct GroupNormalizationOf {
  template <class T>
  static Status Run(KernelCall& call) {
    return NormalizeGroups<T>(call, call.attributes->Int("num_groups", 1));
  }
};

struct MeanVarianceOf {
  // Sums per kept position; reduced dims stretch.
  template <class T>
  static void SumLoop(char* const* p, const int64_t* s, int64_t n, const void*) {
    for (int64_t i = 0; i < n; ++i) {
      const double x = *reinterpret_cast<const T*>(p[1] + i * s[1]);
      *reinterpret_cast<double*>(p[0] + i * s[0]) += x;
    }
  }
  template <class T>
  static void SquareLoop(char* const* p, const int64_t* s, int64_t n, const void* functor) {
    const double scale = *static_cast<const double*>(functor);
    for (int64_t i = 0; i < n; ++i) {
      const double mean = *reinterpret_cast<const double*>(p[1] + i * s[1]) * scale;
      const double d = *reinterpret_cast<const T*>(p[2] + i * s[2]) - mean;
      *reinterpret_cast<double*>(p[0] + i * s[0]) += d * d;
    }
  }
  template <class T>
  static void NormalizeLoop(char* const* p, const int64_t* s, int64_t n, const void* functor) {
    const double scale = *static_cast<const double*>(functor);
    for (int64_t i = 0; i < n; ++i) {
      const double mean = *reinterpret_cast<const double*>(p[1] + i * s[1]) * scale;
      const double deviation = std::sqrt(*reinterpret_cast<const double*>(p[2] + i * s[2]) * scale);
      const double x = *reinterpret_cast<const T*>(p[3] + i * s[3]);
      *reinterpret_cast<T*>(p[0] + i * s[0]) = static_cast<T>((x - mean) / (deviation + 1e-9));
    }
  }

  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& in = call.inputs[0];
    static constexpr int64_t kDefaultAxes[] = {0, 2, 3};
    std::span<const int64_t> axes = call.attributes->Ints("axes");
    if (axes.empty()) axes = kDefaultAxes;
    Dims kept = in.dims;
    for (const int64_t given : axes) {
      ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, in.rank()));
      kept[axis] = 1;
    }
    const int64_t count = NumElements(kept);
    if (in.elements() == 0) return {};
    ASSIGN_OR_RETURN(double* sums, Scratch<double>(call, count));
    ASSIGN_OR_RETURN(double* squares, Scratch<double>(call, count));
    std::fill_n(sums, count, 0.0);
    std::fill_n(squares, count, 0.0);
    const double scale = static_cast<double>(count) / static_cast<double>(in.elements());
    const TensorRef sum = MakeRef(DType::kF64, kept, sums);
    const TensorRef square = MakeRef(DType::kF64, kept, squares);
    const TensorRef first[] = {sum, in};
    ForEachRun(in.dims, first, &SumLoop<T>, nullptr);
    const TensorRef second[] = {square, sum, in};
    ForEachRun(in.dims, second, &SquareLoop<T>, &scale);
    const TensorRef third[] = {call.outputs[0], sum, square, in};
    ForEachRun(in.dims, third, &NormalizeLoop<T>, &scale);
    return {};
  }
};

}  // namespace

ReferenceKernel BatchNormalization(DType dtype) {
  return {FloatKernel<BatchNormalizationOf>(dtype), false};
}
ReferenceKernel LayerNormalization(DType dtype) {
  return {FloatKernel<LayerNormalizationOf>(dtype), false};
}
ReferenceKernel RMSNormalization(DType dtype) {
  return {FloatKernel<RMSNormalizationOf>(dtype), false};
}
ReferenceKernel InstanceNormalization(DType dtype) {
  return {FloatKernel<InstanceNormalizationOf>(dtype), false};
}
ReferenceKernel GroupNormalization(DType dtype) {
  return {FloatKernel<GroupNormalizationOf>(dtype), false};
}
ReferenceKernel MeanVarianceNormalization(DType dtype) {
  return {FloatKernel<MeanVarianceOf>(dtype), false};
}

}  // namespace kiln::kernels
