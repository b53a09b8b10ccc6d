// What a C++ compiler makes of plain loops, with the polynomials of our code generator. Row-major floats.
#pragma once

#include <cstdint>

namespace kiln::bench::loops {

void Gemm(const float* a, const float* b, const float* bias, float* out, int64_t m, int64_t n, int64_t k);  // relu
void Softmax(const float* x, float* out, int64_t rows, int64_t columns);
void LayerNorm(const float* x, const float* scale, const float* bias, float* out, int64_t rows, int64_t columns);
void GeluChain(const float* x, const float* bias, const float* residual, float* out, int64_t rows, int64_t columns);
// Channels last; weights [kernel * kernel][channels].
void Depthwise(const float* x, const float* weights, const float* bias, float* out, int64_t size, int64_t channels,
               int64_t kernel, int64_t stride, int64_t out_size);

}  // namespace kiln::bench::loops
