// Softmax, LogSoftmax, Hardmax, LpNormalization, LRN: along one axis.
#include <algorithm>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

// Calls row(in, out, n, stride) for every line of elements along the axis.
template <class T, class Row>
Status ForEachRow(KernelCall& call, int64_t fallback_axis, Row row) {
  const TensorRef& in = call.inputs[0];
  ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.attributes->Int("axis", fallback_axis), in.rank()));
  const AxisSplit split = SplitAt(in.dims, axis);
  for (int64_t outer = 0; outer < split.outer; ++outer) {
    for (int64_t inner = 0; inner < split.inner; ++inner) {
      const int64_t base = outer * split.size * split.inner + inner;
      row(in.as<T>() + base, call.outputs[0].as<T>() + base, split.size, split.inner);
    }
  }
  return {};
}

template <class T>
T Largest(const T* in, int64_t n, int64_t stride) {
  T best = -std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < n; ++i) best = NanMax(best, in[i * stride]);
  return best;
}

struct SoftmaxOf {
  template <class T>
  static Status Run(KernelCall& call) {
    return ForEachRow<T>(call, -1, [](const T* in, T* out, int64_t n, int64_t stride) {
      const T best = Largest(in, n, stride);
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const T e = std::exp(in[i * stride] - best);
        out[i * stride] = e;
        sum += e;
      }
      const T scale = static_cast<T>(1.0 / sum);
      for (int64_t i = 0; i < n; ++i) out[i * stride] *= scale;
    });
  }
};

struct LogSoftmaxOf {
  template <class T>
  static Status Run(KernelCall& call) {
    return ForEachRow<T>(call, -1, [](const T* in, T* out, int64_t n, int64_t stride) {
      const T best = Largest(in, n, stride);
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += std::exp(in[i * stride] - best);
      const T shift = static_cast<T>(std::log(sum));
      for (int64_t i = 0; i < n; ++i) out[i * stride] = in[i * stride] - best - shift;
    });
  }
};

struct HardmaxOf {
  template <class T>
  static Status Run(KernelCall& call) {
    return ForEachRow<T>(call, -1, [](const T* in, T* out, int64_t n, int64_t stride) {
      int64_t best = 0;
      for (int64_t i = 1; i < n; ++i) {
        if (in[i * stride] > in[best * stride]) best = i;
      }
      for (int64_t i = 0; i < n; ++i) out[i * stride] = i == best ? T(1) : T(0);
    });
  }
};

struct LpNormalizationOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const int64_t p = call.attributes->Int("p", 2);
    return ForEachRow<T>(call, -1, [p](const T* in, T* out, int64_t n, int64_t stride) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double x = in[i * stride];
        sum += p == 1 ? std::fabs(x) : x * x;
      }
      const double norm = p == 1 ? sum : std::sqrt(sum);
      for (int64_t i = 0; i < n; ++i) out[i * stride] = norm == 0 ? T(0) : static_cast<T>(in[i * stride] / norm);
    });
  }
};

struct LRNOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& in = call.inputs[0];
    const double alpha = call.attributes->Float("alpha", 0.0001);
    const double beta = call.attributes->Float("beta", 0.75);
    const double bias = call.attributes->Float("bias", 1.0);
    const int64_t size = call.attributes->Int("size", 1);
    const AxisSplit split = SplitAt(in.dims, 1);
    const int64_t before = (size - 1) / 2;
    const int64_t after = size - 1 - before;
    for (int64_t outer = 0; outer < split.outer; ++outer) {
      const T* x = in.as<T>() + outer * split.size * split.inner;
      T* y = call.outputs[0].as<T>() + outer * split.size * split.inner;
      for (int64_t c = 0; c < split.size; ++c) {
        const int64_t first = std::max<int64_t>(0, c - before);
        const int64_t last = std::min(split.size - 1, c + std::min(after, split.size));
        for (int64_t i = 0; i < split.inner; ++i) {
          double sum = 0;
          for (int64_t k = first; k <= last; ++k) {
            const double value = x[k * split.inner + i];
            sum += value * value;
          }
          const double scale = std::pow(bias + alpha / static_cast<double>(size) * sum, beta);
          y[c * split.inner + i] = static_cast<T>(x[c * split.inner + i] / scale);
        }
      }
    }
    return {};
  }
};

}  // namespace

ReferenceKernel Softmax(DType dtype) {
  return {FloatKernel<SoftmaxOf>(dtype), false};
}
ReferenceKernel LogSoftmax(DType dtype) {
  return {FloatKernel<LogSoftmaxOf>(dtype), false};
}
ReferenceKernel Hardmax(DType dtype) {
  return {FloatKernel<HardmaxOf>(dtype), false};
}
ReferenceKernel LpNormalization(DType dtype) {
  return {FloatKernel<LpNormalizationOf>(dtype), false};
}
ReferenceKernel LRN(DType dtype) {
  return {FloatKernel<LRNOf>(dtype), false};
}

}  // namespace kiln::kernels
