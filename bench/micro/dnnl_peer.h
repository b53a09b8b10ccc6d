// oneDNN on one thread. Weights, and the images of convolutions, are in the layout that the library asks for, reordered
// outside the timing.
#pragma once

#include "bench/micro/cases.h"

namespace kiln::bench::onednn {

std::string Version();
PeerRun MatMul(const float* a, const float* b, const float* bias, int64_t m, int64_t n, int64_t k);  // bias, relu
// Both factors as given; b transposed: [batch, n, k].
PeerRun BatchedMatMul(const float* a, const float* b, int64_t batch, int64_t m, int64_t n, int64_t k, bool transposed);
struct ConvShape {
  int64_t size, channels, columns, kernel, stride;
  bool depthwise;
};
PeerRun Convolution(const float* x, const float* weights, const float* bias, const ConvShape& shape);  // relu
PeerRun Softmax(const float* x, int64_t rows, int64_t columns);
PeerRun LayerNorm(const float* x, const float* scale, const float* bias, int64_t rows, int64_t columns);
PeerRun GeluChain(const float* x, const float* bias, const float* residual, int64_t rows, int64_t columns);
// Product, softmax, product, each its own primitive.
PeerRun Attention(const float* q, const float* k, const float* v, int64_t heads, int64_t length, int64_t width);
PeerRun Lstm(int64_t time, int64_t batch, int64_t input, int64_t hidden);  // over numbers of its own

}  // namespace kiln::bench::onednn
