// Composite ops in terms of views, element-wise ops, reductions and products, so that fusion sees one small language.
#include <algorithm>
#include <numeric>
#include <set>

#include "compile-service/ir/attention_pattern.h"
#include "compile-service/passes/decompose_movement.h"
#include "compile-service/passes/node_replacer.h"
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

// One node of f32 at a time; every method returns whether it replaced the node.
class Decomposer : public NodeReplacer {
 public:
  // Built before nodes are taken out of the graph.
  explicit Decomposer(Rewriter& rewriter) : NodeReplacer(rewriter) {
    for (const ir::AttentionPattern& pattern : ir::FindAttention(graph_)) {
      const int32_t softmax = pattern.nodes[pattern.nodes.size() - 2];
      attention_.insert(graph_.nodes[static_cast<size_t>(softmax)].outputs[0]);
    }
  }

  bool Run(const GraphNode& node);

 private:
  struct Row {
    TensorOp op;
    bool (Decomposer::*run)(const GraphNode&);
  };
  static const Row kRows[];

  // 1-D operands become matrices, so that products always have rank >= 2.
  bool VectorMatMul(const GraphNode& node) {
    GraphValueId a = node.inputs[0], b = node.inputs[1];
    const bool a_vector = Rank(a) == 1, b_vector = Rank(b) == 1;
    if (!a_vector && !b_vector) return false;
    std::vector<Dim> dims = DimsOf(Out(node));
    if (b_vector) {
      b = r_.Reshape(b, {DimsOf(b)[0], kOne});
      dims.push_back(kOne);
    }
    if (a_vector) {
      a = r_.Reshape(a, {kOne, DimsOf(a)[0]});
      dims.insert(dims.end() - 1, kOne);
    }
    r_.Reshape(r_.Emit(TensorOp::kMatMul, {a, b}, std::move(dims)), {}, Out(node));
    return true;
  }

  bool Gemm(const GraphNode& node) {
    GraphValueId a = node.inputs[0], b = node.inputs[1];
    if (node.attributes.Int("transA", 0) != 0) a = r_.Transpose(a, {1, 0});
    if (node.attributes.Int("transB", 0) != 0) b = r_.Transpose(b, {1, 0});
    const double alpha = node.attributes.Float("alpha", 1.0), beta = node.attributes.Float("beta", 1.0);
    const bool has_c = Has(node, 2);
    if (alpha != 1.0 && graph_.value(b).prepack)
      b = r_.Binary(TensorOp::kMul, b, graph_.AddScalar(static_cast<float>(alpha)));
    const bool scale_after = alpha != 1.0 && !graph_.value(b).prepack;
    const std::vector<Dim> dims = DimsOf(Out(node));
    GraphValueId product = r_.Emit(TensorOp::kMatMul, {a, b}, dims, {}, !has_c && !scale_after ? Out(node) : -1);
    if (scale_after) {
      product = r_.Binary(TensorOp::kMul, product, graph_.AddScalar(static_cast<float>(alpha)), has_c ? -1 : Out(node));
    }
    if (!has_c) return true;
    GraphValueId c = node.inputs[2];
    if (beta != 1.0) c = r_.Binary(TensorOp::kMul, c, graph_.AddScalar(static_cast<float>(beta)));
    r_.Binary(TensorOp::kAdd, product, c, Out(node));
    return true;
  }

  bool Softmax(const GraphNode& node) {
    const GraphValueId x = node.inputs[0];
    if (Rank(x) == 0 || attention_.contains(Out(node))) return false;
    const std::vector<int> axes{ir::NormalAxis(node.attributes.Int("axis", -1), Rank(x))};
    const GraphValueId shifted = r_.Binary(TensorOp::kSub, x, r_.Reduce(TensorOp::kReduceMax, x, axes));
    const GraphValueId exp = r_.Unary(TensorOp::kExp, shifted);
    r_.Binary(TensorOp::kDiv, exp, r_.Reduce(TensorOp::kReduceSum, exp, axes), Out(node));
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
    GraphValueId term = x;
    if (node.op == TensorOp::kReduceL1) term = r_.Unary(TensorOp::kAbs, x);
    if (node.op == TensorOp::kReduceL2 || node.op == TensorOp::kReduceSumSquare) term = r_.Binary(TensorOp::kMul, x, x);
    Attributes attributes;
    attributes.Set("axes", std::vector<int64_t>(axes->begin(), axes->end()));
    const bool plain = node.op == TensorOp::kReduceL1 || node.op == TensorOp::kReduceSumSquare;
    const GraphValueId sum =
        r_.Emit(TensorOp::kReduceSum, {term}, DimsOf(Out(node)), std::move(attributes), plain ? Out(node) : -1);
    if (!plain) r_.Unary(node.op == TensorOp::kReduceL2 ? TensorOp::kSqrt : TensorOp::kLog, sum, Out(node));
    return true;
  }

  std::set<GraphValueId> attention_;  // results of softmaxes that one kernel makes together with their products
};

const Decomposer::Row Decomposer::kRows[] = {
    {TensorOp::kMatMul, &Decomposer::VectorMatMul},
    {TensorOp::kGemm, &Decomposer::Gemm},
    {TensorOp::kSoftmax, &Decomposer::Softmax},
    {TensorOp::kLogSoftmax, &Decomposer::LogSoftmax},
    {TensorOp::kLayerNormalization, &Decomposer::LayerNorm},
    {TensorOp::kRMSNormalization, &Decomposer::RmsNorm},
    {TensorOp::kInstanceNormalization, &Decomposer::InstanceNorm},
    {TensorOp::kBatchNormalization, &Decomposer::BatchNorm},
    {TensorOp::kGlobalAveragePool, &Decomposer::GlobalAverage},
    {TensorOp::kGlobalMaxPool, &Decomposer::GlobalMax},
    {TensorOp::kReduceL1, &Decomposer::ComposedReduce},
    {TensorOp::kReduceL2, &Decomposer::ComposedReduce},
    {TensorOp::kReduceSumSquare, &Decomposer::ComposedReduce},
    {TensorOp::kReduceLogSum, &Decomposer::ComposedReduce},
};

bool Decomposer::Run(const GraphNode& node) {
  for (const Row& row : kRows) {
    if (row.op == node.op) return graph_.value(node.inputs[0]).dtype == DType::kF32 && (this->*row.run)(node);
  }
  return false;
}

}  // namespace

Result<bool> Decompose(Graph& graph) {
  Rewriter rewriter(graph);
  Decomposer decomposer(rewriter);
  for (GraphNode& node : rewriter.TakeNodes()) {
    rewriter.Begin(node);
    if (!DecomposeMovement(rewriter, node) && !decomposer.Run(node)) rewriter.Keep(std::move(node));
  }
  rewriter.Finish();
  return rewriter.changed();
}

}  // namespace kiln::passes
