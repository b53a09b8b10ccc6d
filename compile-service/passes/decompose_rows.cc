// Softmax, normalisations and composed reductions in terms of reductions and element-wise ops, so that fusion sees
// rows.
#include <algorithm>
#include <numeric>
#include <set>

#include "compile-service/ir/attention_pattern.h"
#include "compile-service/passes/node_table.h"
#include "compile-service/passes/passes.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

constexpr Dim kOne = Dim::Const(1);

std::vector<int> AxesFrom(int first, int rank) {
  std::vector<int> axes(static_cast<size_t>(std::max(rank - first, 0)));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

class RowDecomposer : public NodeTable<RowDecomposer> {
 public:
  // Built before nodes are taken out of the graph.
  explicit RowDecomposer(Rewriter& rewriter) : NodeTable(rewriter) {
    for (const ir::AttentionPattern& pattern : ir::FindAttention(graph_)) {
      const int32_t softmax = pattern.nodes[pattern.nodes.size() - 2];
      attention_.insert(graph_.nodes[static_cast<size_t>(softmax)].outputs[0]);
    }
  }

  static std::span<const Row> Rows();

 private:
  bool Softmax(const GraphNode& node) {
    const GraphValueId x = node.inputs[0];
    if (Rank(x) == 0 || attention_.contains(Out(node))) return false;
    const std::vector<int> axes{ir::NormalAxis(node.attributes.Int("axis", -1), Rank(x))};
    const GraphValueId shifted = r_.Binary(TensorOp::kSub, x, r_.Reduce(TensorOp::kReduceMax, x, axes));
    const GraphValueId exp = r_.Unary(TensorOp::kExp, shifted);
    // The sum is at least 1, or no number: its reciprocal loses nothing.
    const GraphValueId inverse = r_.Unary(TensorOp::kReciprocal, r_.Reduce(TensorOp::kReduceSum, exp, axes));
    r_.Binary(TensorOp::kMul, exp, inverse, Out(node));
    return true;
  }

  bool LogSoftmax(const GraphNode& node) {
    const GraphValueId x = node.inputs[0];
    if (Rank(x) == 0) return false;
    const std::vector<int> axes{ir::NormalAxis(node.attributes.Int("axis", -1), Rank(x))};
    const GraphValueId shifted = r_.Binary(TensorOp::kSub, x, r_.Reduce(TensorOp::kReduceMax, x, axes));
    const GraphValueId sum = r_.Reduce(TensorOp::kReduceSum, r_.Unary(TensorOp::kExp, shifted), axes);
    r_.Binary(TensorOp::kSub, shifted, r_.Unary(TensorOp::kLog, sum), Out(node));
    return true;
  }

  // (x - mean) / sqrt(variance + epsilon) over `axes`; mean and inverse deviation land in the given values.
  GraphValueId Normalize(GraphValueId x, const std::vector<int>& axes, double epsilon, GraphValueId mean_into,
                         GraphValueId inverse_into, GraphValueId into) {
    const GraphValueId mean = r_.Reduce(TensorOp::kReduceMean, x, axes, mean_into);
    const GraphValueId centred = r_.Binary(TensorOp::kSub, x, mean);
    const GraphValueId square = r_.Binary(TensorOp::kMul, centred, centred);
    const GraphValueId variance = r_.Reduce(TensorOp::kReduceMean, square, axes);
    const GraphValueId shifted = r_.Binary(TensorOp::kAdd, variance, graph_.AddScalar(static_cast<float>(epsilon)));
    const GraphValueId inverse = r_.Unary(TensorOp::kReciprocal, r_.Unary(TensorOp::kSqrt, shifted), inverse_into);
    return r_.Binary(TensorOp::kMul, centred, inverse, into);
  }

  bool LayerNorm(const GraphNode& node) {
    const GraphValueId x = node.inputs[0];
    const std::vector<int> axes = AxesFrom(ir::NormalAxis(node.attributes.Int("axis", -1), Rank(x)), Rank(x));
    const auto output = [&](size_t i) { return i < node.outputs.size() ? node.outputs[i] : -1; };
    const GraphValueId normal = Normalize(x, axes, node.attributes.Float("epsilon", 1e-5), output(1), output(2), -1);
    const GraphValueId scaled = r_.Binary(TensorOp::kMul, normal, node.inputs[1], Has(node, 2) ? -1 : Out(node));
    if (Has(node, 2)) r_.Binary(TensorOp::kAdd, scaled, node.inputs[2], Out(node));
    return true;
  }

  // The mean is taken twice: what rounding leaves of the first one would be the whole result beside deviations of 0.
  bool MeanVarianceNorm(const GraphNode& node) {
    const GraphValueId x = node.inputs[0];
    std::set<int> reduced;
    const std::span<const int64_t> given = node.attributes.Ints("axes");
    for (const int64_t axis : given.empty() ? std::vector<int64_t>{0, 2, 3} : std::vector(given.begin(), given.end())) {
      if (axis < -Rank(x) || axis >= Rank(x)) return false;
      reduced.insert(ir::NormalAxis(axis, Rank(x)));
    }
    const std::vector<int> axes(reduced.begin(), reduced.end());
    const auto centre = [&](GraphValueId value) {
      return r_.Binary(TensorOp::kSub, value, r_.Reduce(TensorOp::kReduceMean, value, axes));
    };
    const GraphValueId centred = centre(centre(x));
    const GraphValueId variance = r_.Reduce(TensorOp::kReduceMean, r_.Binary(TensorOp::kMul, centred, centred), axes);
    const GraphValueId deviation = r_.Unary(TensorOp::kSqrt, variance);
    r_.Binary(TensorOp::kDiv, centred, r_.Binary(TensorOp::kAdd, deviation, graph_.AddScalar(1e-9f)), Out(node));
    return true;
  }

  // x / (bias + alpha * mean of squares over neighbouring channels)^beta. The mean is that of a pool over an image
  // whose rows are the channels and whose channels are the pixels; channels beyond the ends count as 0.
  bool LocalResponseNorm(const GraphNode& node) {
    const GraphValueId x = node.inputs[0];
    const int64_t size = node.attributes.Int("size", 1);
    if (Rank(x) < 3 || size < 1 || size > limits::kSpecWindowMax) return false;
    const std::vector<Dim> dims = DimsOf(x);
    const Dim pixels = graph_.Elements({dims.begin() + 2, dims.end()});
    const GraphValueId planes = r_.Reshape(r_.Binary(TensorOp::kMul, x, x), {dims[0], dims[1], pixels});
    Attributes window;
    window.Set("kernel_shape", std::vector<int64_t>{size});
    window.Set("pads", std::vector<int64_t>{(size - 1) / 2, size - 1 - (size - 1) / 2});
    window.Set("count_include_pad", int64_t{1});
    const GraphValueId transposed = r_.Transpose(planes, {0, 2, 1});
    const GraphValueId mean =
        r_.Emit(TensorOp::kAveragePool, {transposed}, {dims[0], pixels, dims[1]}, std::move(window));
    const GraphValueId squares = r_.Reshape(r_.Transpose(mean, {0, 2, 1}), dims);
    const auto number = [&](const char* name, double fallback) {
      return graph_.AddScalar(static_cast<float>(node.attributes.Float(name, fallback)));
    };
    const GraphValueId scaled = r_.Binary(TensorOp::kMul, squares, number("alpha", 1e-4));
    const GraphValueId base = r_.Binary(TensorOp::kAdd, scaled, number("bias", 1));
    r_.Binary(TensorOp::kDiv, x, r_.Binary(TensorOp::kPow, base, number("beta", 0.75)), Out(node));
    return true;
  }

  // Rows by their norm; a row of norm 0 stays 0. Squares are those of elements beside the largest, so that none
  // vanishes where the result would not; beside an infinite one all others are 0.
  bool LpNorm(const GraphNode& node) {
    const int64_t p = node.attributes.Int("p", 2);
    GraphValueId x = node.inputs[0];
    if (Rank(x) == 0 || (p != 1 && p != 2)) return false;
    const std::vector<int> axes{ir::NormalAxis(node.attributes.Int("axis", -1), Rank(x))};
    const GraphValueId sizes = r_.Unary(TensorOp::kAbs, x);
    GraphValueId norm = r_.Reduce(p == 1 ? TensorOp::kReduceSum : TensorOp::kReduceMax, sizes, axes);
    const GraphValueId zero = graph_.AddScalar(0.0f);
    const GraphValueId none = r_.Binary(TensorOp::kEqual, norm, zero);
    graph_.value(none).dtype = DType::kBool;
    if (p == 2) {
      const GraphValueId infinite = r_.Unary(TensorOp::kIsInf, norm);
      graph_.value(infinite).dtype = DType::kBool;
      const GraphValueId unit = r_.Emit(TensorOp::kWhere, {infinite, graph_.AddScalar(1.0f), norm}, DimsOf(norm));
      graph_.value(unit).dtype = DType::kF32;
      x = r_.Binary(TensorOp::kDiv, x, unit);
      norm = r_.Unary(TensorOp::kSqrt, r_.Reduce(TensorOp::kReduceSum, r_.Binary(TensorOp::kMul, x, x), axes));
    }
    r_.Emit(TensorOp::kWhere, {none, zero, r_.Binary(TensorOp::kDiv, x, norm)}, {}, {}, Out(node));
    return true;
  }

  bool RmsNorm(const GraphNode& node) {
    const GraphValueId x = node.inputs[0];
    const std::vector<int> axes = AxesFrom(ir::NormalAxis(node.attributes.Int("axis", -1), Rank(x)), Rank(x));
    const GraphValueId mean = r_.Reduce(TensorOp::kReduceMean, r_.Binary(TensorOp::kMul, x, x), axes);
    const GraphValueId epsilon = graph_.AddScalar(static_cast<float>(node.attributes.Float("epsilon", 1e-5)));
    const GraphValueId inverse =
        r_.Unary(TensorOp::kReciprocal, r_.Unary(TensorOp::kSqrt, r_.Binary(TensorOp::kAdd, mean, epsilon)));
    r_.Binary(TensorOp::kMul, r_.Binary(TensorOp::kMul, x, inverse), node.inputs[1], Out(node));
    return true;
  }

  // [C] as [C, 1, …] beside the spatial dims of a tensor of `rank`.
  GraphValueId PerChannel(GraphValueId vector, int rank) {
    std::vector<Dim> dims{DimsOf(vector)[0]};
    for (int i = 2; i < rank; ++i) dims.push_back(kOne);
    return r_.Reshape(vector, std::move(dims));
  }

  bool InstanceNorm(const GraphNode& node) {
    const GraphValueId x = node.inputs[0];
    if (Rank(x) < 3) return false;
    const GraphValueId normal = Normalize(x, AxesFrom(2, Rank(x)), node.attributes.Float("epsilon", 1e-5), -1, -1, -1);
    const GraphValueId scaled = r_.Binary(TensorOp::kMul, normal, PerChannel(node.inputs[1], Rank(x)));
    r_.Binary(TensorOp::kAdd, scaled, PerChannel(node.inputs[2], Rank(x)), Out(node));
    return true;
  }

  // The channels of a group lie side by side: a dim of groups, of which each is one row.
  bool GroupNorm(const GraphNode& node) {
    const GraphValueId x = node.inputs[0];
    std::vector<Dim> parts = DimsOf(x);
    const Dim groups = Dim::Const(node.attributes.Int("num_groups", 1));
    const Dim channels = graph_.symbols.ExactDiv(parts[1], groups);
    if (!graph_.symbols.ProvenEqual(graph_.symbols.Mul(channels, groups), parts[1])) return false;
    if (parts.size() >= static_cast<size_t>(limits::kRankMax)) return false;
    parts[1] = channels;
    parts.insert(parts.begin() + 1, groups);
    std::vector<Dim> per_channel(parts.begin() + 1, parts.begin() + 3);
    per_channel.resize(parts.size() - 1, kOne);
    const GraphValueId rows = r_.Reshape(x, parts);
    const int rank = static_cast<int>(parts.size());
    const GraphValueId normal = Normalize(rows, AxesFrom(2, rank), node.attributes.Float("epsilon", 1e-5), -1, -1, -1);
    const GraphValueId scaled = r_.Binary(TensorOp::kMul, normal, r_.Reshape(node.inputs[1], per_channel));
    r_.Reshape(r_.Binary(TensorOp::kAdd, scaled, r_.Reshape(node.inputs[2], per_channel)), {}, Out(node));
    return true;
  }

  // x * s + t with s = scale / sqrt(variance + epsilon), t = bias - mean * s, which are prepacked.
  bool BatchNorm(const GraphNode& node) {
    const GraphValueId x = node.inputs[0];
    if (Rank(x) < 2) return false;
    const GraphValueId epsilon = graph_.AddScalar(static_cast<float>(node.attributes.Float("epsilon", 1e-5)));
    const GraphValueId deviation = r_.Unary(TensorOp::kSqrt, r_.Binary(TensorOp::kAdd, node.inputs[4], epsilon));
    const GraphValueId s = r_.Binary(TensorOp::kDiv, node.inputs[1], deviation);
    const GraphValueId t = r_.Binary(TensorOp::kSub, node.inputs[2], r_.Binary(TensorOp::kMul, node.inputs[3], s));
    const GraphValueId scaled = r_.Binary(TensorOp::kMul, x, PerChannel(s, Rank(x)));
    r_.Binary(TensorOp::kAdd, scaled, PerChannel(t, Rank(x)), Out(node));
    return true;
  }

  bool GlobalAverage(const GraphNode& node) {
    r_.Reduce(TensorOp::kReduceMean, node.inputs[0], AxesFrom(2, Rank(node.inputs[0])), Out(node));
    return true;
  }

  bool GlobalMax(const GraphNode& node) {
    r_.Reduce(TensorOp::kReduceMax, node.inputs[0], AxesFrom(2, Rank(node.inputs[0])), Out(node));
    return true;
  }

  bool ComposedReduce(const GraphNode& node) {
    const std::optional<std::vector<int>> axes = ir::ReduceAxes(graph_, node);
    if (!axes || axes->empty()) return false;
    const GraphValueId x = node.inputs[0];
    const DType dtype = graph_.value(x).dtype;
    const bool plain = node.op == TensorOp::kReduceL1 || node.op == TensorOp::kReduceSumSquare;
    // What sums of integers wrap to follows from terms that wrapped.
    if (dtype != DType::kF32 && !(plain && (dtype == DType::kI32 || dtype == DType::kI64))) return false;
    GraphValueId term = x;
    if (node.op == TensorOp::kReduceL1) term = r_.Unary(TensorOp::kAbs, x);
    if (node.op == TensorOp::kReduceL2 || node.op == TensorOp::kReduceSumSquare) term = r_.Binary(TensorOp::kMul, x, x);
    Attributes attributes;
    attributes.Set("axes", std::vector<int64_t>(axes->begin(), axes->end()));
    const GraphValueId sum =
        r_.Emit(TensorOp::kReduceSum, {term}, DimsOf(Out(node)), std::move(attributes), plain ? Out(node) : -1);
    if (!plain) r_.Unary(node.op == TensorOp::kReduceL2 ? TensorOp::kSqrt : TensorOp::kLog, sum, Out(node));
    return true;
  }
  // log(sum(e^x)) as m + log(sum(e^(x - m))) with the largest element m, or 0 where that is infinite.
  bool LogSumExp(const GraphNode& node) {
    const std::optional<std::vector<int>> axes = ir::ReduceAxes(graph_, node);
    if (!axes || axes->empty()) return false;
    const GraphValueId x = node.inputs[0];
    const GraphValueId largest = r_.Reduce(TensorOp::kReduceMax, x, *axes);
    const GraphValueId infinite = r_.Unary(TensorOp::kIsInf, largest);
    graph_.value(infinite).dtype = DType::kBool;
    const GraphValueId shift = r_.Emit(TensorOp::kWhere, {infinite, graph_.AddScalar(0.0f), largest}, DimsOf(largest));
    graph_.value(shift).dtype = DType::kF32;
    const GraphValueId terms = r_.Unary(TensorOp::kExp, r_.Binary(TensorOp::kSub, x, shift));
    const GraphValueId log = r_.Unary(TensorOp::kLog, r_.Reduce(TensorOp::kReduceSum, terms, *axes));
    const bool keeps = Rank(Out(node)) == Rank(x);
    const GraphValueId sum = r_.Binary(TensorOp::kAdd, shift, log, keeps ? Out(node) : -1);
    if (!keeps) r_.Reshape(sum, {}, Out(node));
    return true;
  }

  std::set<GraphValueId> attention_;  // results of softmaxes that one kernel makes together with their products
};

std::span<const RowDecomposer::Row> RowDecomposer::Rows() {
  static constexpr Row kRows[] = {
      {TensorOp::kSoftmax, true, &RowDecomposer::Softmax},
      {TensorOp::kLogSoftmax, true, &RowDecomposer::LogSoftmax},
      {TensorOp::kLayerNormalization, true, &RowDecomposer::LayerNorm},
      {TensorOp::kRMSNormalization, true, &RowDecomposer::RmsNorm},
      {TensorOp::kInstanceNormalization, true, &RowDecomposer::InstanceNorm},
      {TensorOp::kGroupNormalization, true, &RowDecomposer::GroupNorm},
      {TensorOp::kBatchNormalization, true, &RowDecomposer::BatchNorm},
      {TensorOp::kMeanVarianceNormalization, true, &RowDecomposer::MeanVarianceNorm},
      {TensorOp::kLRN, true, &RowDecomposer::LocalResponseNorm},
      {TensorOp::kLpNormalization, true, &RowDecomposer::LpNorm},
      {TensorOp::kGlobalAveragePool, true, &RowDecomposer::GlobalAverage},
      {TensorOp::kGlobalMaxPool, true, &RowDecomposer::GlobalMax},
      {TensorOp::kReduceL1, false, &RowDecomposer::ComposedReduce},
      {TensorOp::kReduceL2, true, &RowDecomposer::ComposedReduce},
      {TensorOp::kReduceSumSquare, false, &RowDecomposer::ComposedReduce},
      {TensorOp::kReduceLogSum, true, &RowDecomposer::ComposedReduce},
      {TensorOp::kReduceLogSumExp, true, &RowDecomposer::LogSumExp},
  };
  return kRows;
}

}  // namespace

Result<bool> DecomposeRows(Graph& graph) {
  return RewriteEach<RowDecomposer>(graph);
}

}  // namespace kiln::passes
