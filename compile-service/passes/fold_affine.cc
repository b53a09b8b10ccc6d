// Arithmetic with weights moves out of the run: divisions become multiplications, scales and shifts after a convolution
// or product become part of its (prepacked) weights and bias.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>

#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;

constexpr Dim kOne = Dim::Const(1);

std::vector<int> CountUses(const Graph& graph, std::span<const GraphNode> nodes) {
  std::vector<int> uses(graph.values.size(), 0);
  for (const GraphNode& node : nodes) {
    for (GraphValueId input : node.inputs) {
      if (input >= 0) ++uses[static_cast<size_t>(input)];
    }
  }
  for (GraphValueId output : graph.outputs) ++uses[static_cast<size_t>(output)];
  return uses;
}

// Whether `value` varies over nothing but dim `channel` of a tensor of `rank` (and is prepacked).
bool IsPerChannel(const Graph& graph, GraphValueId id, int channel, int rank) {
  const GraphValue& value = graph.value(id);
  if (!value.prepack || value.dtype != DType::kF32 || value.rank() > rank) return false;
  for (int i = 0; i < value.rank(); ++i) {
    if (i + rank - value.rank() != channel && value.dims[static_cast<size_t>(i)] != kOne) return false;
  }
  return true;
}

// Remembers the contractions emitted so far, so that a following Mul or Add can be folded into them.
class AffineFolder {
 public:
  AffineFolder(Rewriter& rewriter, std::vector<int> uses)
      : r_(rewriter), graph_(rewriter.graph()), uses_(std::move(uses)) {}

  // Replaces `node` by a contraction with other weights, when it can.
  bool Run(const GraphNode& node) {
    if ((node.op != TensorOp::kMul && node.op != TensorOp::kAdd) || node.inputs.size() != 2) return false;
    for (int side : {0, 1}) {
      const GraphValueId x = node.inputs[static_cast<size_t>(side)], s = node.inputs[static_cast<size_t>(1 - side)];
      const auto found = contractions_.find(x);
      if (found == contractions_.end() || uses_[static_cast<size_t>(x)] != 1) continue;
      if (!graph_.SameDims(graph_.value(x).dims, graph_.value(node.outputs[0]).dims)) continue;
      if (found->second.op == TensorOp::kConv ? FoldConv(found->second, node, s) : FoldMatMul(found->second, node, s))
        return true;
    }
    return false;
  }

  void Remember(const GraphNode& node) {
    const bool weights = node.inputs.size() > 1 && node.inputs[1] >= 0 && graph_.value(node.inputs[1]).prepack &&
                         graph_.value(node.outputs[0]).dtype == DType::kF32;
    if (weights && (node.op == TensorOp::kConv || node.op == TensorOp::kMatMul)) contractions_[node.outputs[0]] = node;
  }

 private:
  bool FoldConv(GraphNode conv, const GraphNode& node, GraphValueId s) {
    const int rank = graph_.value(conv.outputs[0]).rank();
    if (!IsPerChannel(graph_, s, 1, rank)) return false;
    const Dim channels = graph_.value(conv.inputs[1]).dims[0];
    // As a vector [C], or a scalar left to broadcast.
    const bool scalar = !(graph_.value(s).rank() >= rank - 1 &&
                          graph_.value(s).dims[static_cast<size_t>(graph_.value(s).rank() - rank + 1)] != kOne);
    const auto as = [&](std::vector<Dim> dims) { return r_.Reshape(s, std::move(dims)); };
    const bool has_bias = conv.inputs.size() > 2 && conv.inputs[2] >= 0;
    const GraphValueId vector = as({scalar ? kOne : channels});
    conv.inputs.resize(3, -1);
    if (node.op == TensorOp::kMul) {
      std::vector<Dim> dims(static_cast<size_t>(rank), kOne);
      if (!scalar) dims[0] = channels;
      conv.inputs[1] = r_.Binary(TensorOp::kMul, conv.inputs[1], as(std::move(dims)));
      if (has_bias) conv.inputs[2] = r_.Binary(TensorOp::kMul, conv.inputs[2], vector);
    } else if (has_bias) {
      conv.inputs[2] = r_.Binary(TensorOp::kAdd, conv.inputs[2], vector);
    } else {
      conv.inputs[2] = scalar ? r_.Emit(TensorOp::kExpand, {vector}, {channels}) : vector;
    }
    Install(std::move(conv), node);
    return true;
  }

  bool FoldMatMul(GraphNode product, const GraphNode& node, GraphValueId s) {
    if (node.op != TensorOp::kMul) return false;
    const int rank = graph_.value(product.outputs[0]).rank();
    if (!IsPerChannel(graph_, s, rank - 1, rank)) return false;
    const std::vector<Dim>& dims = graph_.value(s).dims;
    const GraphValueId vector = r_.Reshape(s, {dims.empty() ? kOne : dims.back()});
    product.inputs[1] = r_.Binary(TensorOp::kMul, product.inputs[1], vector);
    Install(std::move(product), node);
    return true;
  }

  // The folded contraction computes `node`'s output; the former one has no reader left.
  void Install(GraphNode contraction, const GraphNode& node) {
    contraction.outputs = node.outputs;
    contraction.sources.insert(contraction.sources.end(), node.sources.begin(), node.sources.end());
    uses_.resize(graph_.values.size(), 0);
    r_.Keep(contraction);
    Remember(contraction);
  }

  Rewriter& r_;
  Graph& graph_;
  std::vector<int> uses_;
  std::map<GraphValueId, GraphNode> contractions_;  // by output
};

}  // namespace

namespace {

// Values that are never denormal: square roots, what is at least a normal number, and views of such.
std::vector<bool> NeverDenormal(const Graph& graph, std::span<const GraphNode> nodes) {
  std::vector<bool> never(graph.values.size(), false);
  const auto is_normal = [&](GraphValueId id) {
    const std::optional<float> number = graph.ScalarOf(id);
    return number && *number > 0 && std::isnormal(*number);
  };
  for (const GraphNode& node : nodes) {
    if (node.outputs.size() != 1 || node.inputs.empty() || node.inputs[0] < 0) continue;
    const bool of_known = never[static_cast<size_t>(node.inputs[0])];
    bool result = node.op == TensorOp::kSqrt;
    if (OpInfo(node.op).family == OpFamily::kView) result = of_known;
    if (node.op == TensorOp::kMax) result = std::ranges::any_of(node.inputs, is_normal);
    if (node.op == TensorOp::kClip) result = node.inputs.size() == 2 && is_normal(node.inputs[1]);
    never[static_cast<size_t>(node.outputs[0])] = result;
  }
  return never;
}

// Factors whose product is 1/divisor: one, or two where the divisor may be a denormal. Its own reciprocal is infinite,
// and 0 times that is no number.
std::vector<GraphValueId> InverseOf(Rewriter& rewriter, GraphValueId divisor, bool never_denormal) {
  if (never_denormal) return {rewriter.Unary(TensorOp::kReciprocal, divisor)};
  Graph& graph = rewriter.graph();
  const std::vector<Dim> dims = graph.value(divisor).dims;
  const GraphValueId size = rewriter.Unary(TensorOp::kAbs, divisor);
  const GraphValueId tiny = rewriter.Binary(TensorOp::kLess, size, graph.AddScalar(std::numeric_limits<float>::min()));
  graph.value(tiny).dtype = DType::kBool;
  const GraphValueId scale =
      rewriter.Emit(TensorOp::kWhere, {tiny, graph.AddScalar(0x1p64f), graph.AddScalar(1.0f)}, dims);
  graph.value(scale).dtype = DType::kF32;
  return {rewriter.Unary(TensorOp::kReciprocal, rewriter.Binary(TensorOp::kMul, divisor, scale)), scale};
}

}  // namespace

Result<bool> CheapenDivisions(Graph& graph) {
  Rewriter rewriter(graph);
  std::vector<GraphNode> nodes = rewriter.TakeNodes();
  const std::vector<bool> never_denormal = NeverDenormal(graph, nodes);
  for (GraphNode& node : nodes) {
    rewriter.Begin(node);
    const bool division = node.op == TensorOp::kDiv && graph.value(node.inputs[0]).dtype == DType::kF32;
    if (!division || graph.value(node.outputs[0]).prepack) {
      rewriter.Keep(std::move(node));
      continue;
    }
    const GraphValueId divisor = node.inputs[1];
    if (const std::optional<float> number = graph.ScalarOf(divisor)) {
      const float inverse = 1.0f / *number;
      if (std::isnormal(inverse) || std::isinf(*number)) {
        rewriter.Binary(TensorOp::kMul, node.inputs[0], graph.AddScalar(inverse), node.outputs[0]);
      } else {
        rewriter.Keep(std::move(node));
      }
      continue;
    }
    const std::vector<Dim>& d = graph.value(divisor).dims;
    const std::vector<Dim>& out = graph.value(node.outputs[0]).dims;
    bool smaller = d.size() < out.size();
    for (size_t i = 0; i < d.size(); ++i) {
      smaller = smaller || (graph.IsOne(d[i]) && !graph.IsOne(out[out.size() - d.size() + i]));
    }
    if (!smaller) {
      rewriter.Keep(std::move(node));
      continue;
    }
    const auto at = static_cast<size_t>(divisor);
    const std::vector<GraphValueId> inverse =
        InverseOf(rewriter, divisor, at < never_denormal.size() && never_denormal[at]);
    GraphValueId quotient = node.inputs[0];
    for (size_t i = 0; i < inverse.size(); ++i)
      quotient = rewriter.Binary(TensorOp::kMul, quotient, inverse[i], i + 1 == inverse.size() ? node.outputs[0] : -1);
  }
  rewriter.Finish();
  return rewriter.changed();
}

Result<bool> FoldAffine(Graph& graph) {
  Rewriter rewriter(graph);
  std::vector<GraphNode> nodes = rewriter.TakeNodes();
  AffineFolder folder(rewriter, CountUses(graph, nodes));
  for (GraphNode& node : nodes) {
    rewriter.Begin(node);
    if (folder.Run(node)) continue;
    folder.Remember(node);
    rewriter.Keep(std::move(node));
  }
  rewriter.Finish();
  return rewriter.changed();
}

}  // namespace kiln::passes
