#include "bench/micro/dnnl_peer.h"

#include <cmath>
#include <cstring>
#include <dnnl.hpp>
#include <memory>
#include <unordered_map>

namespace kiln::bench::onednn {
namespace {

using dnnl::memory;
using Dims = memory::dims;
using Tag = memory::format_tag;
constexpr auto kFloat = memory::data_type::f32;

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}
dnnl::stream& Stream() {
  static dnnl::stream stream(Engine());
  return stream;
}

memory::desc Plain(const Dims& dims, Tag tag) {
  return {dims, kFloat, tag};
}
memory::desc Any(const Dims& dims) {
  return {dims, kFloat, Tag::any};
}
memory Of(const float* data, const Dims& dims, Tag tag) {
  return {Plain(dims, tag), Engine(), const_cast<float*>(data)};
}
// In the layout wanted.
memory Reordered(memory from, const memory::desc& wanted) {
  if (from.get_desc() == wanted) return from;
  memory to(wanted, Engine());
  dnnl::reorder(from, to).execute(Stream(), from, to);
  Stream().wait();
  return to;
}

struct Call {
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
};

PeerRun RunOf(std::vector<Call> calls, const memory& output) {
  auto shared = std::make_shared<std::vector<Call>>(std::move(calls));
  PeerRun run{"oneDNN", Version(), {}, static_cast<const float*>(output.get_data_handle())};
  run.run = [shared] {
    for (Call& call : *shared) call.primitive.execute(Stream(), call.arguments);
    Stream().wait();
  };
  return run;
}

dnnl::primitive_attr Relu() {
  dnnl::post_ops ops;
  ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0, 0);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(ops);
  return attributes;
}

}  // namespace

std::string Version() {
  const dnnl::version_t* version = dnnl::version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

PeerRun MatMul(const float* a, const float* b, const float* bias, int64_t m, int64_t n, int64_t k) {
  const dnnl::matmul::desc desc(Plain({m, k}, Tag::ab), Any({k, n}), Plain({1, n}, Tag::ab), Plain({m, n}, Tag::ab));
  const dnnl::matmul::primitive_desc primitive(desc, Relu(), Engine());
  memory out(Plain({m, n}, Tag::ab), Engine());
  return RunOf({{dnnl::matmul(primitive),
                 {{DNNL_ARG_SRC, Of(a, {m, k}, Tag::ab)},
                  {DNNL_ARG_WEIGHTS, Reordered(Of(b, {k, n}, Tag::ab), primitive.weights_desc())},
                  {DNNL_ARG_BIAS, Of(bias, {1, n}, Tag::ab)},
                  {DNNL_ARG_DST, out}}}},
               out);
}

PeerRun BatchedMatMul(const float* a, const float* b, int64_t batch, int64_t m, int64_t n, int64_t k, bool transposed) {
  const Tag tag = transposed ? Tag::acb : Tag::abc;
  const dnnl::matmul::desc desc(Plain({batch, m, k}, Tag::abc), Plain({batch, k, n}, tag),
                                Plain({batch, m, n}, Tag::abc));
  const dnnl::matmul::primitive_desc primitive(desc, Engine());
  memory out(Plain({batch, m, n}, Tag::abc), Engine());
  return RunOf({{dnnl::matmul(primitive),
                 {{DNNL_ARG_SRC, Of(a, {batch, m, k}, Tag::abc)},
                  {DNNL_ARG_WEIGHTS, Of(b, {batch, k, n}, tag)},
                  {DNNL_ARG_DST, out}}}},
               out);
}

PeerRun Convolution(const float* x, const float* weights, const float* bias, const ConvShape& s) {
  const int64_t pad = s.kernel / 2, out_size = (s.size + 2 * pad - s.kernel) / s.stride + 1;
  const Dims image{1, s.channels, s.size, s.size}, result{1, s.columns, out_size, out_size};
  const Dims filter =
      s.depthwise ? Dims{s.channels, 1, 1, s.kernel, s.kernel} : Dims{s.columns, s.channels, s.kernel, s.kernel};
  const Tag filter_tag = s.depthwise ? Tag::goihw : Tag::oihw;
  const dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
                                             Any(image), Any(filter), Plain({s.columns}, Tag::a), Any(result),
                                             {s.stride, s.stride}, {pad, pad}, {pad, pad});
  const dnnl::convolution_forward::primitive_desc primitive(desc, Relu(), Engine());
  memory out(primitive.dst_desc(), Engine());
  PeerRun run = RunOf({{dnnl::convolution_forward(primitive),
                        {{DNNL_ARG_SRC, Reordered(Of(x, image, Tag::nhwc), primitive.src_desc())},
                         {DNNL_ARG_WEIGHTS, Reordered(Of(weights, filter, filter_tag), primitive.weights_desc())},
                         {DNNL_ARG_BIAS, Of(bias, {s.columns}, Tag::a)},
                         {DNNL_ARG_DST, out}}}},
                      out);
  if (primitive.dst_desc() != Plain(result, Tag::nhwc)) run.output = nullptr;
  return run;
}

PeerRun Softmax(const float* x, int64_t rows, int64_t columns) {
  const dnnl::softmax_forward::desc desc(dnnl::prop_kind::forward_inference, Plain({rows, columns}, Tag::ab), 1);
  memory out(Plain({rows, columns}, Tag::ab), Engine());
  return RunOf({{dnnl::softmax_forward({desc, Engine()}),
                 {{DNNL_ARG_SRC, Of(x, {rows, columns}, Tag::ab)}, {DNNL_ARG_DST, out}}}},
               out);
}

PeerRun LayerNorm(const float* x, const float* scale, const float* bias, int64_t rows, int64_t columns) {
  const dnnl::layer_normalization_forward::desc desc(
      dnnl::prop_kind::forward_inference, Plain({rows, columns}, Tag::ab), 1e-5f,
      dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift);
  memory out(Plain({rows, columns}, Tag::ab), Engine());
  return RunOf({{dnnl::layer_normalization_forward({desc, Engine()}),
                 {{DNNL_ARG_SRC, Of(x, {rows, columns}, Tag::ab)},
                  {DNNL_ARG_SCALE, Of(scale, {columns}, Tag::a)},
                  {DNNL_ARG_SHIFT, Of(bias, {columns}, Tag::a)},
                  {DNNL_ARG_DST, out}}}},
               out);
}

PeerRun GeluChain(const float* x, const float* bias, const float* residual, int64_t rows, int64_t columns) {
  const Dims dims{rows, columns}, row{1, columns};
  dnnl::post_ops ops;
  ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_gelu_erf, 0, 0);
  ops.append_binary(dnnl::algorithm::binary_add, Plain(dims, Tag::ab));
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(ops);
  const dnnl::binary::desc desc(dnnl::algorithm::binary_add, Plain(dims, Tag::ab), Plain(row, Tag::ab),
                                Plain(dims, Tag::ab));
  memory out(Plain(dims, Tag::ab), Engine());
  return RunOf({{dnnl::binary({desc, attributes, Engine()}),
                 {{DNNL_ARG_SRC_0, Of(x, dims, Tag::ab)},
                  {DNNL_ARG_SRC_1, Of(bias, row, Tag::ab)},
                  {DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, Of(residual, dims, Tag::ab)},
                  {DNNL_ARG_DST, out}}}},
               out);
}

PeerRun Attention(const float* q, const float* k, const float* v, int64_t heads, int64_t length, int64_t width) {
  const Dims rows{heads, length, width}, scores{heads, length, length};
  dnnl::primitive_attr scaled;
  scaled.set_output_scales(0, {1.0f / std::sqrt(static_cast<float>(width))});
  const dnnl::matmul::desc first(Plain(rows, Tag::abc), Plain({heads, width, length}, Tag::acb),
                                 Plain(scores, Tag::abc));
  const dnnl::softmax_forward::desc softmax(dnnl::prop_kind::forward_inference, Plain(scores, Tag::abc), 2);
  const dnnl::matmul::desc second(Plain(scores, Tag::abc), Plain(rows, Tag::abc), Plain(rows, Tag::abc));
  memory between(Plain(scores, Tag::abc), Engine()), out(Plain(rows, Tag::abc), Engine());
  return RunOf({{dnnl::matmul({first, scaled, Engine()}),
                 {{DNNL_ARG_SRC, Of(q, rows, Tag::abc)},
                  {DNNL_ARG_WEIGHTS, Of(k, {heads, width, length}, Tag::acb)},
                  {DNNL_ARG_DST, between}}},
                {dnnl::softmax_forward({softmax, Engine()}), {{DNNL_ARG_SRC, between}, {DNNL_ARG_DST, between}}},
                {dnnl::matmul({second, Engine()}),
                 {{DNNL_ARG_SRC, between}, {DNNL_ARG_WEIGHTS, Of(v, rows, Tag::abc)}, {DNNL_ARG_DST, out}}}},
               out);
}

PeerRun Lstm(int64_t time, int64_t batch, int64_t input, int64_t hidden) {
  const Dims x{time, batch, input}, y{time, batch, hidden}, state{1, 1, batch, hidden};
  const dnnl::lstm_forward::desc desc(
      dnnl::prop_kind::forward_inference, dnnl::rnn_direction::unidirectional_left2right, Plain(x, Tag::tnc),
      Plain(state, Tag::ldnc), Plain(state, Tag::ldnc), Any({1, 1, input, 4, hidden}), Any({1, 1, hidden, 4, hidden}),
      Plain({1, 1, 4, hidden}, Tag::ldgo), Plain(y, Tag::tnc), Plain(state, Tag::ldnc), Plain(state, Tag::ldnc));
  const dnnl::lstm_forward::primitive_desc primitive(desc, Engine());
  const auto filled = [](const memory::desc& wanted) {
    memory result(wanted, Engine());
    std::memset(result.get_data_handle(), 0, wanted.get_size());
    return result;
  };
  memory out = filled(Plain(y, Tag::tnc));
  PeerRun run = RunOf({{dnnl::lstm_forward(primitive),
                        {{DNNL_ARG_SRC_LAYER, filled(Plain(x, Tag::tnc))},
                         {DNNL_ARG_SRC_ITER, filled(Plain(state, Tag::ldnc))},
                         {DNNL_ARG_SRC_ITER_C, filled(Plain(state, Tag::ldnc))},
                         {DNNL_ARG_WEIGHTS_LAYER, filled(primitive.weights_layer_desc())},
                         {DNNL_ARG_WEIGHTS_ITER, filled(primitive.weights_iter_desc())},
                         {DNNL_ARG_BIAS, filled(Plain({1, 1, 4, hidden}, Tag::ldgo))},
                         {DNNL_ARG_DST_LAYER, out},
                         {DNNL_ARG_DST_ITER, filled(Plain(state, Tag::ldnc))},
                         {DNNL_ARG_DST_ITER_C, filled(Plain(state, Tag::ldnc))}}}},
                      out);
  run.output = nullptr;
  return run;
}

}  // namespace kiln::bench::onednn
