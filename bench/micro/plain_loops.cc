#include "bench/micro/plain_loops.h"

#include <bit>
#include <cmath>

#include "compile-service/codegen/llvm/math_coefficients.h"

namespace kiln::bench::loops {
namespace {

namespace c = codegen::coefficients;

template <int kCount>
inline float Polynomial(float x, const float (&coefficients)[kCount]) {
  float result = coefficients[kCount - 1];
  for (int k = kCount - 1; k-- > 0;) result = result * x + coefficients[k];
  return result;
}

inline float Exp(float x) {
  x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
  const float n = __builtin_rintf(x * 0x1.715476p+0f);
  const float r = x - n * 0x1.62e43p-1f;
  const float p = Polynomial(r, c::kExp) * r * r + r + 1.0f;
  return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

inline float Erf(float x) {
  const float magnitude = __builtin_fabsf(x);
  const float small = Polynomial(x * x, c::kErfSmall) * x + x;
  const float limited = magnitude > 4.0f ? 4.0f : magnitude;
  const float large = __builtin_copysignf(1.0f - Exp(Polynomial(limited, c::kErfLarge)), x);
  return magnitude < 1.0f ? small : large;
}

}  // namespace

void Gemm(const float* a, const float* b, const float* bias, float* out, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    float* row = out + i * n;
    for (int64_t j = 0; j < n; ++j) row[j] = bias[j];
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j) row[j] += a[i * k + l] * b[l * n + j];
    for (int64_t j = 0; j < n; ++j) row[j] = row[j] > 0 ? row[j] : 0;
  }
}

void Softmax(const float* x, float* out, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* in = x + i * columns;
    float* to = out + i * columns;
    float largest = in[0], sum = 0;
    for (int64_t j = 0; j < columns; ++j) largest = in[j] > largest ? in[j] : largest;
    for (int64_t j = 0; j < columns; ++j) {
      to[j] = Exp(in[j] - largest);
      sum += to[j];
    }
    const float scale = 1 / sum;
    for (int64_t j = 0; j < columns; ++j) to[j] *= scale;
  }
}

void LayerNorm(const float* x, const float* scale, const float* bias, float* out, int64_t rows, int64_t columns) {
  const float share = 1.0f / static_cast<float>(columns);
  for (int64_t i = 0; i < rows; ++i) {
    const float* in = x + i * columns;
    float sum = 0, squares = 0;
    for (int64_t j = 0; j < columns; ++j) sum += in[j];
    const float mean = sum * share;
    for (int64_t j = 0; j < columns; ++j) squares += (in[j] - mean) * (in[j] - mean);
    const float factor = 1.0f / std::sqrt(squares * share + 1e-5f);
    for (int64_t j = 0; j < columns; ++j) out[i * columns + j] = (in[j] - mean) * factor * scale[j] + bias[j];
  }
}

void GeluChain(const float* x, const float* bias, const float* residual, float* out, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const float v = x[i * columns + j] + bias[j];
      out[i * columns + j] = 0.5f * v * (1.0f + Erf(v * 0x1.6a09e6p-1f)) + residual[i * columns + j];
    }
}

void Depthwise(const float* x, const float* weights, const float* bias, float* out, int64_t size, int64_t channels,
               int64_t kernel, int64_t stride, int64_t out_size) {
  const int64_t pad = kernel / 2;
  for (int64_t row = 0; row < out_size; ++row)
    for (int64_t column = 0; column < out_size; ++column) {
      float* to = out + (row * out_size + column) * channels;
      for (int64_t ch = 0; ch < channels; ++ch) to[ch] = bias[ch];
      for (int64_t i = 0; i < kernel; ++i)
        for (int64_t j = 0; j < kernel; ++j) {
          const int64_t r = row * stride - pad + i, s = column * stride - pad + j;
          if (r < 0 || r >= size || s < 0 || s >= size) continue;
          const float* from = x + (r * size + s) * channels;
          const float* w = weights + (i * kernel + j) * channels;
          for (int64_t ch = 0; ch < channels; ++ch) to[ch] += from[ch] * w[ch];
        }
      for (int64_t ch = 0; ch < channels; ++ch) to[ch] = to[ch] > 0 ? to[ch] : 0;
    }
}

}  // namespace kiln::bench::loops
