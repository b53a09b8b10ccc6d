#include "bench/micro/cases.h"

#include <cblas.h>

#include <cmath>
#include <memory>

#include "bench/micro/dnnl_peer.h"
#include "bench/micro/plain_loops.h"

extern "C" char* openblas_get_corename(void);

namespace kiln::bench {
namespace {

using Floats = std::shared_ptr<std::vector<float>>;

Floats Output(int64_t count) {
  return std::make_shared<std::vector<float>>(static_cast<size_t>(count));
}
std::string Text(int64_t number) {
  return std::to_string(number);
}
std::string Constant(const std::string& name, const std::string& dims) {
  return "constant " + name + " : f32[" + dims + "] = splat 0.5\n";
}
std::string Use(const std::string& name, const std::string& dims) {
  return "%" + name + " : f32[" + dims + "] = Constant() {value = @" + name + "}\n";
}
std::string Program(const std::string& constants, const std::string& inputs, const std::string& nodes) {
  return "program \"p\" { symbol n in [1, 65536]\n" + constants + "func main(" + inputs + ") -> (%y) {\n" + nodes +
         "} }";
}

PeerRun OpenBlas(std::function<void()> run, const Floats& out) {
  return {"OpenBLAS", openblas_get_corename(), std::move(run), out == nullptr ? nullptr : out->data()};
}
PeerRun Clang(std::function<void()> run, const Floats& out) {
  return {"clang", "19", std::move(run), out->data()};
}
blasint Blas(int64_t n) {
  return static_cast<blasint>(n);
}

constexpr double kPlainLoopFlopsMax = 4e8;  // above, plain loops take too long and tell nothing else

MicroCase Gemm(int64_t m, int64_t size) {
  const std::string n = Text(size);
  MicroCase result{"gemm", "gemm " + Text(m) + "x" + n + "x" + n,
                   Program(Constant("w", n + ", " + n) + Constant("b", n), "%x: f32[n, " + n + "]",
                           Use("w", n + ", " + n) + Use("b", n) +
                               "%m : f32[*] = MatMul(%x, %w)\n%s : f32[*] = Add(%m, %b)\n%y : f32[*] = Relu(%s)\n"),
                   m};
  result.flops = 2.0 * static_cast<double>(m * size * size);
  result.bytes = 4.0 * static_cast<double>(size * size + 2 * m * size);
  result.peers = [m, size, flops = result.flops](const PlanRunner& kiln) {
    const float *x = kiln.input(0), *w = kiln.weight(0), *b = kiln.weight(1);
    const Floats product = Output(m * size);
    std::vector<PeerRun> peers = {onednn::MatMul(x, w, b, m, size, size),
                                  OpenBlas(
                                      [=] {
                                        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, Blas(m), Blas(size),
                                                    Blas(size), 1, x, Blas(size), w, Blas(size), 0, product->data(),
                                                    Blas(size));
                                      },
                                      nullptr)};
    const Floats out = Output(m * size);
    if (flops <= kPlainLoopFlopsMax)
      peers.push_back(Clang([=] { loops::Gemm(x, w, b, out->data(), m, size, size); }, out));
    return peers;
  };
  return result;
}

// Both factors are activations; the second one transposed.
MicroCase Transposed(int64_t m, int64_t size) {
  const std::string n = Text(size);
  MicroCase result{"gemm", "transposed " + Text(m) + "x" + n + "x" + n,
                   Program("", "%a: f32[n, " + n + "], %b: f32[" + n + ", " + n + "]",
                           "%t : f32[*] = Transpose(%b) {perm = [1, 0]}\n%y : f32[*] = MatMul(%a, %t)\n"),
                   m};
  result.flops = 2.0 * static_cast<double>(m * size * size);
  result.bytes = 4.0 * static_cast<double>(size * size + 2 * m * size);
  result.peers = [m, size](const PlanRunner& kiln) {
    const float *b = kiln.input(0), *a = kiln.input(1);
    const Floats out = Output(m * size);
    return std::vector<PeerRun>{onednn::BatchedMatMul(a, b, 1, m, size, size, true),
                                OpenBlas(
                                    [=] {
                                      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, Blas(m), Blas(size),
                                                  Blas(size), 1, a, Blas(size), b, Blas(size), 0, out->data(),
                                                  Blas(size));
                                    },
                                    out)};
  };
  return result;
}

// [12, n, n] by [12, n, 64], as attention's second product.
MicroCase Batched(int64_t length) {
  MicroCase result{"gemm", "batched 12x" + Text(length) + "x64x" + Text(length),
                   Program("", "%a: f32[12, n, n], %b: f32[12, n, 64]", "%y : f32[*] = MatMul(%a, %b)\n"), length};
  result.flops = 2.0 * 12 * 64 * static_cast<double>(length * length);
  result.bytes = 4.0 * 12 * static_cast<double>(length * length + 128 * length);
  result.peers = [length](const PlanRunner& kiln) {
    const float *a = kiln.input(0), *b = kiln.input(1);
    const Floats out = Output(12 * length * 64);
    return std::vector<PeerRun>{onednn::BatchedMatMul(a, b, 12, length, 64, length, false),
                                OpenBlas(
                                    [=] {
                                      for (int64_t i = 0; i < 12; ++i)
                                        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, Blas(length), 64,
                                                    Blas(length), 1, a + i * length * length, Blas(length),
                                                    b + i * length * 64, 64, 0, out->data() + i * length * 64, 64);
                                    },
                                    out)};
  };
  return result;
}

MicroCase Conv(const onednn::ConvShape& s) {
  const std::string k = Text(s.kernel), pad = Text(s.kernel / 2), stride = Text(s.stride);
  const std::string weights = Text(s.columns) + ", " + Text(s.depthwise ? 1 : s.channels) + ", " + k + ", " + k;
  const std::string attributes = "{kernel_shape = [" + k + ", " + k + "], pads = [" + pad + ", " + pad + ", " + pad +
                                 ", " + pad + "], strides = [" + stride + ", " + stride +
                                 "], group = " + Text(s.depthwise ? s.channels : 1) + "}";
  MicroCase result{
      s.depthwise ? "depthwise" : "conv",
      std::string(s.depthwise ? "depthwise " : "conv ") + Text(s.size) + "x" + Text(s.size) + " " + Text(s.channels) +
          "->" + Text(s.columns) + " k" + k + " s" + stride,
      Program(Constant("k", weights) + Constant("b", Text(s.columns)), "%x: f32[1, n, n, " + Text(s.channels) + "]",
              Use("k", weights) + Use("b", Text(s.columns)) +
                  "%t : f32[*] = Transpose(%x) {perm = [0, 3, 1, 2]}\n%c : f32[*] = Conv(%t, %k, %b) " + attributes +
                  "\n%r : f32[*] = Relu(%c)\n%y : f32[*] = Transpose(%r) {perm = [0, 2, 3, 1]}\n"),
      s.size};
  const int64_t out = (s.size + 2 * (s.kernel / 2) - s.kernel) / s.stride + 1;
  const int64_t depth = s.kernel * s.kernel * (s.depthwise ? 1 : s.channels);
  result.flops = 2.0 * static_cast<double>(out * out * s.columns * depth);
  result.bytes = 4.0 * static_cast<double>(out * out * s.columns + s.size * s.size * s.channels + s.columns * depth);
  result.isolated = true;  // inside models, images stay channels-last
  result.peers = [s, out](const PlanRunner& kiln) {
    const float *x = kiln.input(0), *w = kiln.weight(0), *b = kiln.weight(1);
    std::vector<PeerRun> peers = {onednn::Convolution(x, w, b, s)};
    if (!s.depthwise) return peers;
    const int64_t taps = s.kernel * s.kernel;
    const Floats turned = Output(taps * s.channels), result = Output(out * out * s.channels);
    for (int64_t c = 0; c < s.channels; ++c)
      for (int64_t t = 0; t < taps; ++t) (*turned)[static_cast<size_t>(t * s.channels + c)] = w[c * taps + t];
    peers.push_back(Clang(
        [=] { loops::Depthwise(x, turned->data(), b, result->data(), s.size, s.channels, s.kernel, s.stride, out); },
        result));
    return peers;
  };
  return result;
}

MicroCase Softmax(int64_t rows, int64_t columns) {
  MicroCase result{"rows", "softmax " + Text(rows) + "x" + Text(columns),
                   Program("", "%x: f32[n, " + Text(columns) + "]", "%y : f32[*] = Softmax(%x) {axis = -1}\n"), rows};
  result.bytes = 8.0 * static_cast<double>(rows * columns);
  result.peers = [rows, columns](const PlanRunner& kiln) {
    const float* x = kiln.input(0);
    const Floats out = Output(rows * columns);
    return std::vector<PeerRun>{onednn::Softmax(x, rows, columns),
                                Clang([=] { loops::Softmax(x, out->data(), rows, columns); }, out)};
  };
  return result;
}

MicroCase LayerNorm(int64_t rows, int64_t columns) {
  const std::string n = Text(columns);
  MicroCase result{"rows", "layernorm " + Text(rows) + "x" + n,
                   Program(Constant("g", n) + Constant("b", n), "%x: f32[n, " + n + "]",
                           Use("g", n) + Use("b", n) + "%y : f32[*] = LayerNormalization(%x, %g, %b) {axis = -1}\n"),
                   rows};
  result.bytes = 8.0 * static_cast<double>(rows * columns);
  result.peers = [rows, columns](const PlanRunner& kiln) {
    const float *x = kiln.input(0), *g = kiln.weight(0), *b = kiln.weight(1);
    const Floats out = Output(rows * columns);
    return std::vector<PeerRun>{onednn::LayerNorm(x, g, b, rows, columns),
                                Clang([=] { loops::LayerNorm(x, g, b, out->data(), rows, columns); }, out)};
  };
  return result;
}

MicroCase GeluChain(int64_t rows, int64_t columns) {
  const std::string n = Text(columns);
  MicroCase result{
      "rows", "bias+gelu+residual " + Text(rows) + "x" + n,
      Program(Constant("b", n), "%x: f32[n, " + n + "], %r: f32[n, " + n + "]",
              Use("b", n) + "%s : f32[*] = Add(%x, %b)\n%g : f32[*] = Gelu(%s)\n%y : f32[*] = Add(%g, %r)\n"),
      rows};
  result.bytes = 12.0 * static_cast<double>(rows * columns);
  result.peers = [rows, columns](const PlanRunner& kiln) {
    const float *x = kiln.input(0), *r = kiln.input(1), *b = kiln.weight(0);
    const Floats out = Output(rows * columns);
    return std::vector<PeerRun>{onednn::GeluChain(x, b, r, rows, columns),
                                Clang([=] { loops::GeluChain(x, b, r, out->data(), rows, columns); }, out)};
  };
  return result;
}

MicroCase Attention(int64_t length) {
  MicroCase result{
      "attention", "attention 12x" + Text(length) + "x64",
      Program("constant c : f32[] = splat 0.125\n", "%q: f32[12, n, 64], %k: f32[12, n, 64], %v: f32[12, n, 64]",
              Use("c", "") + "%t : f32[*] = Transpose(%k) {perm = [0, 2, 1]}\n%s : f32[*] = MatMul(%q, %t)\n"
                             "%m : f32[*] = Mul(%s, %c)\n%p : f32[*] = Softmax(%m) {axis = -1}\n"
                             "%y : f32[*] = MatMul(%p, %v)\n"),
      length};
  result.flops = 4.0 * 12 * 64 * static_cast<double>(length * length);
  result.bytes = 16.0 * 12 * 64 * static_cast<double>(length);
  result.peers = [length](const PlanRunner& kiln) {
    const float *k = kiln.input(0), *q = kiln.input(1), *v = kiln.input(2);
    const Floats scores = Output(length * length), out = Output(12 * length * 64);
    const auto products = [=] {
      const blasint n = Blas(length);
      for (int64_t i = 0; i < 12; ++i) {
        const int64_t at = i * length * 64;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, 64, 0.125f, q + at, 64, k + at, 64, 0,
                    scores->data(), n);
        loops::Softmax(scores->data(), scores->data(), length, length);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, 64, n, 1, scores->data(), n, v + at, 64, 0,
                    out->data() + at, 64);
      }
    };
    return std::vector<PeerRun>{onednn::Attention(q, k, v, 12, length, 64), OpenBlas(products, out)};
  };
  return result;
}

// One new query over a cache of keys and values: K and V are read once.
MicroCase Decode(int64_t length) {
  MicroCase result{
      "attention", "decode 12x1x64 over " + Text(length),
      Program("constant c : f32[] = splat 0.125\n", "%q: f32[12, 1, 64], %k: f32[12, n, 64], %v: f32[12, n, 64]",
              Use("c", "") + "%t : f32[*] = Transpose(%k) {perm = [0, 2, 1]}\n%s : f32[*] = MatMul(%q, %t)\n"
                             "%m : f32[*] = Mul(%s, %c)\n%p : f32[*] = Softmax(%m) {axis = -1}\n"
                             "%y : f32[*] = MatMul(%p, %v)\n"),
      length};
  result.flops = 4.0 * 12 * 64 * static_cast<double>(length);
  result.bytes = 8.0 * 12 * 64 * static_cast<double>(length);
  result.peers = [length](const PlanRunner& kiln) {
    const float *k = kiln.input(0), *q = kiln.input(1), *v = kiln.input(2);
    const Floats scores = Output(length), out = Output(12 * 64);
    const auto products = [=] {
      for (int64_t i = 0; i < 12; ++i) {
        cblas_sgemv(CblasRowMajor, CblasNoTrans, Blas(length), 64, 0.125f, k + i * length * 64, 64, q + i * 64, 1, 0,
                    scores->data(), 1);
        loops::Softmax(scores->data(), scores->data(), 1, length);
        cblas_sgemv(CblasRowMajor, CblasTrans, Blas(length), 64, 1, v + i * length * 64, 64, scores->data(), 1, 0,
                    out->data() + i * 64, 1);
      }
    };
    return std::vector<PeerRun>{OpenBlas(products, out)};
  };
  return result;
}

MicroCase Lstm(int64_t time) {
  MicroCase result{"lstm", "lstm 300->512, " + Text(time) + " steps",
                   Program(Constant("w", "1, 2048, 300") + Constant("r", "1, 2048, 512"), "%x: f32[n, 1, 300]",
                           Use("w", "1, 2048, 300") + Use("r", "1, 2048, 512") +
                               "%y : f32[*] = LSTM(%x, %w, %r, _, _, _, _, _) {hidden_size = 512}\n"),
                   time};
  result.flops = 2.0 * 2048 * 812 * static_cast<double>(time);
  result.bytes = 4.0 * 2048 * 812;
  result.peers = [time](const PlanRunner&) { return std::vector<PeerRun>{onednn::Lstm(time, 1, 300, 512)}; };
  return result;
}

}  // namespace

std::vector<MicroCase> AllCases() {
  std::vector<MicroCase> cases;
  for (int64_t size : {512, 768, 1000, 3072})
    for (int64_t m : {1, 2, 5, 8, 17, 64, 100, 256}) cases.push_back(Gemm(m, size));
  for (int64_t m : {1, 2, 4, 8, 17, 64, 256}) cases.push_back(Transposed(m, 768));
  for (int64_t length : {16, 128, 512}) cases.push_back(Batched(length));
  // ResNet-50, then MobileNet.
  for (const onednn::ConvShape& s : {onednn::ConvShape{224, 3, 64, 7, 2, false},
                                     {56, 64, 64, 1, 1, false},
                                     {56, 64, 64, 3, 1, false},
                                     {56, 64, 256, 1, 1, false},
                                     {28, 128, 128, 3, 1, false},
                                     {56, 256, 512, 1, 2, false},
                                     {14, 256, 256, 3, 1, false},
                                     {14, 1024, 256, 1, 1, false},
                                     {7, 512, 512, 3, 1, false},
                                     {112, 32, 64, 1, 1, false},
                                     {28, 256, 256, 1, 1, false},
                                     {14, 512, 512, 1, 1, false},
                                     {112, 32, 32, 3, 1, true},
                                     {56, 128, 128, 3, 1, true},
                                     {56, 128, 128, 3, 2, true},
                                     {28, 256, 256, 3, 1, true},
                                     {14, 512, 512, 3, 1, true},
                                     {7, 1024, 1024, 3, 1, true},
                                     {28, 192, 192, 5, 1, true}})
    cases.push_back(Conv(s));
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{64, 128}, {256, 1000}, {1536, 128}, {12, 512}})
    cases.push_back(Softmax(rows, columns));
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 768}, {64, 768}, {512, 768}})
    cases.push_back(LayerNorm(rows, columns));
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 3072}, {64, 3072}, {512, 3072}})
    cases.push_back(GeluChain(rows, columns));
  for (int64_t length : {1, 16, 128, 512}) cases.push_back(Attention(length));
  for (int64_t length : {128, 1024, 4096}) cases.push_back(Decode(length));
  for (int64_t time : {1, 20}) cases.push_back(Lstm(time));
  return cases;
}

}  // namespace kiln::bench
