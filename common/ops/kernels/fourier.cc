// DFT and STFT, in double: any length by splitting it into its prime factors, or, where one of them is large, as a
// convolution by a length that is a power of two (Bluestein's algorithm).
#include <bit>
#include <cmath>
#include <numbers>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

struct Number {
  double re, im;
};
inline Number operator+(Number a, Number b) {
  return {a.re + b.re, a.im + b.im};
}
inline Number operator-(Number a, Number b) {
  return {a.re - b.re, a.im - b.im};
}
inline Number operator*(Number a, Number b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
inline Number Conjugate(Number a) {
  return {a.re, -a.im};
}

// Splitting costs a prime factor's square; beyond this the convolution is cheaper.
constexpr int64_t kFactorMax = 64;

int64_t SmallestFactor(int64_t n) {
  for (int64_t p = 2; p * p <= n; ++p)
    if (n % p == 0) return p;
  return n;
}
int64_t LargestFactor(int64_t n) {
  while (true) {
    const int64_t p = SmallestFactor(n);
    if (p == n) return n;
    n /= p;
  }
}

// e^(2 pi i k / n); |k| < n.
Number Root(double k, double n) {
  const double angle = 2 * std::numbers::pi * (k / n);
  return {std::cos(angle), std::sin(angle)};
}

// One length whose prime factors are small. `roots` holds e^(±2 pi i k / n).
struct Split {
  int64_t n = 0;
  Number* roots = nullptr;

  Status Prepare(KernelCall& call, int64_t length, double sign) {
    n = length;
    ASSIGN_OR_RETURN(double* const memory, Scratch<double>(call, 2 * n));
    roots = reinterpret_cast<Number*>(memory);
    for (int64_t k = 0; k < n; ++k) roots[k] = Root(sign * static_cast<double>(k), static_cast<double>(n));
    return {};
  }

  // out[k] = sum over j < size of in[j stride] w^(jk), w = roots[n / size].
  void Run(int64_t size, const Number* in, int64_t stride, Number* out) const {
    if (size == 1) {
      out[0] = in[0];
      return;
    }
    const int64_t factor = SmallestFactor(size), rest = size / factor, step = n / size;
    for (int64_t r = 0; r < factor; ++r) Run(rest, in + r * stride, stride * factor, out + r * rest);
    if (factor == 2) {
      for (int64_t k = 0; k < rest; ++k) {
        const Number even = out[k], odd = out[rest + k] * roots[k * step];
        out[k] = even + odd;
        out[rest + k] = even - odd;
      }
      return;
    }
    Number parts[kFactorMax];
    for (int64_t k = 0; k < rest; ++k) {
      for (int64_t r = 0; r < factor; ++r) parts[r] = out[r * rest + k];
      for (int64_t q = 0; q < factor; ++q) {
        const int64_t turn = (k + q * rest) * step;  // below n
        Number sum = parts[0];
        for (int64_t r = 1, at = turn; r < factor; ++r, at = at + turn < n ? at + turn : at + turn - n)
          sum = sum + parts[r] * roots[at];
        out[q * rest + k] = sum;
      }
    }
  }
};

// One length of any kind, forward or inverse (unscaled).
class Fourier {
 public:
  // `in` and `out` of the result have room for one line each.
  static Result<Fourier> Prepare(KernelCall& call, int64_t length, bool inverse) {
    Fourier fourier;
    fourier.n_ = length;
    const double sign = inverse ? 1 : -1;
    const bool small = LargestFactor(length) <= kFactorMax;
    const int64_t padded = small ? 0 : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * length - 1)));
    RETURN_IF_ERROR(fourier.split_.Prepare(call, small ? length : padded, small ? sign : -1));
    ASSIGN_OR_RETURN(double* const memory, Scratch<double>(call, 2 * (2 * length + (small ? 0 : length + 3 * padded))));
    fourier.in = reinterpret_cast<Number*>(memory);
    fourier.out = fourier.in + length;
    if (!small) fourier.PrepareChirp(fourier.out + length, padded, sign);
    return fourier;
  }

  // Transforms `in` to `out`.
  void Run() const {
    if (chirp_ == nullptr) {
      split_.Run(n_, in, 1, out);
      return;
    }
    for (int64_t k = 0; k < n_; ++k) a_[k] = in[k] * chirp_[k];
    std::fill(a_ + n_, a_ + split_.n, Number{});
    split_.Run(split_.n, a_, 1, b_);
    // The inverse transform of the product, by the forward one of its conjugate.
    for (int64_t k = 0; k < split_.n; ++k) a_[k] = Conjugate(b_[k] * filter_[k]);
    split_.Run(split_.n, a_, 1, b_);
    const double scale = 1.0 / static_cast<double>(split_.n);
    for (int64_t k = 0; k < n_; ++k) out[k] = Conjugate(b_[k]) * chirp_[k] * Number{scale, 0};
  }

  Number *in = nullptr, *out = nullptr;

 private:
  void PrepareChirp(Number* memory, int64_t padded, double sign) {
    chirp_ = memory;
    a_ = chirp_ + n_;
    b_ = a_ + padded;
    filter_ = b_ + padded;
    std::fill(a_, a_ + padded, Number{});
    int64_t square = 0;  // k^2 modulo 2n
    for (int64_t k = 0; k < n_; ++k) {
      chirp_[k] = Root(sign * static_cast<double>(square), static_cast<double>(2 * n_));
      a_[k] = Conjugate(chirp_[k]);
      if (k > 0) a_[padded - k] = a_[k];
      square = (square + 2 * k + 1) % (2 * n_);
    }
    split_.Run(padded, a_, 1, filter_);
  }

  int64_t n_ = 0;
  Split split_;
  Number *chirp_ = nullptr, *a_ = nullptr, *b_ = nullptr, *filter_ = nullptr;
};

struct DftOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef &in = call.inputs[0], &out = call.outputs[0];
    if (out.elements() == 0) return {};
    const int rank = in.rank();
    ASSIGN_OR_RETURN(const int axis, NormalizeAxis(call.Has(2) ? ReadInt(call.inputs[2]) : -2, rank));
    const bool inverse = call.attributes->Int("inverse", 0) != 0;
    const bool half_in = inverse && call.attributes->Int("onesided", 0) != 0;
    const int64_t in_size = in.dims[axis], out_size = out.dims[axis];
    const int64_t in_parts = in.dims[rank - 1], out_parts = out.dims[rank - 1];
    const int64_t length = call.Has(1) ? ReadInt(call.inputs[1]) : half_in ? out_size : in_size;
    ASSIGN_OR_RETURN(const Fourier fourier, Fourier::Prepare(call, length, inverse));
    const int64_t bins = half_in ? length / 2 + 1 : length;
    const double scale = inverse ? 1.0 / static_cast<double>(length) : 1.0;
    const AxisSplit split = SplitAt(out.dims, axis);
    const int64_t inner = split.inner / out_parts;  // lines side by side
    for (int64_t line = 0; line < split.outer * inner; ++line) {
      const int64_t o = line / inner, i = line % inner;
      const T* x = in.as<T>() + (o * in_size * inner + i) * in_parts;
      T* y = out.as<T>() + (o * out_size * inner + i) * out_parts;
      for (int64_t j = 0; j < bins; ++j, x += inner * in_parts)
        fourier.in[j] = j >= in_size ? Number{} : Number{x[0], in_parts == 2 ? double{x[1]} : 0};
      for (int64_t j = bins; j < length; ++j) fourier.in[j] = Conjugate(fourier.in[length - j]);
      fourier.Run();
      for (int64_t j = 0; j < out_size; ++j, y += inner * out_parts) {
        y[0] = static_cast<T>(fourier.out[j].re * scale);
        if (out_parts == 2) y[1] = static_cast<T>(fourier.out[j].im * scale);
      }
    }
    return {};
  }
};

struct StftOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef &signal = call.inputs[0], &out = call.outputs[0];
    if (out.elements() == 0) return {};
    const int64_t size = signal.dims[1], parts = signal.dims[2];
    const int64_t step = ReadInt(call.inputs[1]);
    const int64_t frame = call.Has(3) ? ReadInt(call.inputs[3]) : call.Has(2) ? call.inputs[2].dims[0] : size;
    const T* window = call.Has(2) ? call.inputs[2].as<T>() : nullptr;
    ASSIGN_OR_RETURN(const Fourier fourier, Fourier::Prepare(call, frame, false));
    const int64_t frames = out.dims[1], bins = out.dims[2];
    T* y = out.as<T>();
    for (int64_t f = 0; f < signal.dims[0] * frames; ++f) {
      const T* x = signal.as<T>() + (f / frames * size + f % frames * step) * parts;
      for (int64_t j = 0; j < frame; ++j, x += parts) {
        const double weight = window != nullptr ? double{window[j]} : 1.0;
        fourier.in[j] = {weight * x[0], parts == 2 ? weight * x[1] : 0};
      }
      fourier.Run();
      for (int64_t j = 0; j < bins; ++j) {
        *y++ = static_cast<T>(fourier.out[j].re);
        *y++ = static_cast<T>(fourier.out[j].im);
      }
    }
    return {};
  }
};

}  // namespace

ReferenceKernel DFT(DType dtype) {
  return {FloatKernel<DftOf>(dtype), false};
}
ReferenceKernel STFT(DType dtype) {
  return {FloatKernel<StftOf>(dtype), false};
}

}  // namespace kiln::kernels
