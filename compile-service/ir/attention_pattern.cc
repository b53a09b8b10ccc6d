#include "compile-service/ir/attention_pattern.h"

#include <algorithm>

#include "compile-service/ir/kernel_spec.h"

namespace kiln::ir {
namespace {

constexpr size_t kBetweenMax = 12;

// What may be done to scores; all of them are element-wise over f32.
bool IsScoreOp(TensorOp op) {
  return op == TensorOp::kAdd || op == TensorOp::kSub || op == TensorOp::kMul || op == TensorOp::kDiv ||
         op == TensorOp::kWhere || op == TensorOp::kTanh || op == TensorOp::kNeg;
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), readers_(graph.values.size(), 0) {
    for (const GraphNode& node : graph.nodes)
      for (GraphValueId input : node.inputs)
        if (input >= 0) ++readers_[static_cast<size_t>(input)];
    for (GraphValueId output : graph.outputs) ++readers_[static_cast<size_t>(output)];
  }

  std::vector<AttentionPattern> Run() {
    std::vector<AttentionPattern> patterns;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const GraphNode& product = graph_.nodes[n];
      if (product.op != TensorOp::kMatMul || !IsRows(product.inputs[1])) continue;
      const int32_t softmax = MakerOf(product.inputs[0]);
      if (softmax < 0 || !IsSoftmaxOfRows(softmax) || !IsPrivate(product.inputs[0])) continue;
      const GraphValueId scores = node(softmax).inputs[0];
      scores_ = graph_.value(scores).dims;
      if (graph_.IsOne(scores_[scores_.size() - 2])) continue;
      if (!HasBatch(graph_.value(product.outputs[0]).dims) || !Broadcasts(product.inputs[1])) continue;
      AttentionPattern pattern;
      if (!Walk(scores, pattern.nodes)) continue;
      pattern.nodes.push_back(softmax);
      pattern.nodes.push_back(static_cast<int32_t>(n));
      patterns.push_back(std::move(pattern));
    }
    return patterns;
  }

 private:
  const GraphNode& node(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  int32_t MakerOf(GraphValueId id) const {
    const GraphValue& value = graph_.value(id);
    return value.origin == Origin::kNode && !value.prepack ? value.index : -1;
  }
  bool IsPrivate(GraphValueId id) const { return readers_[static_cast<size_t>(id)] == 1; }

  // An f32 run-time tensor of matrices with rows that fit.
  bool IsMatrices(GraphValueId id) const {
    const GraphValue& value = graph_.value(id);
    return value.dtype == DType::kF32 && !value.prepack && value.origin != Origin::kWeight && value.rank() >= 2;
  }
  static bool Fits(Dim elements) {
    return elements.is_const() && elements.value() >= 1 && elements.value() <= kAttentionElementsMax;
  }
  bool IsRows(GraphValueId id) const { return IsMatrices(id) && Fits(graph_.value(id).dims.back()); }

  bool IsSoftmaxOfRows(int32_t n) const {
    const GraphNode& softmax = node(n);
    if (softmax.op != TensorOp::kSoftmax) return false;
    const GraphValue& x = graph_.value(softmax.inputs[0]);
    return x.dtype == DType::kF32 && x.rank() >= 2 &&
           NormalAxis(softmax.attributes.Int("axis", -1), x.rank()) == x.rank() - 1;
  }

  // Dims with the batch of the scores.
  bool HasBatch(const std::vector<Dim>& dims) const {
    if (dims.size() != scores_.size()) return false;
    for (size_t i = 0; i + 2 < dims.size(); ++i)
      if (!graph_.symbols.ProvenEqual(dims[i], scores_[i])) return false;
    return true;
  }
  // Whether the batch dims of a tensor of matrices broadcast to those of the scores.
  bool Broadcasts(GraphValueId id) const {
    const std::vector<Dim>& dims = graph_.value(id).dims;
    if (dims.size() > scores_.size()) return false;
    for (size_t i = 0; i + 2 < dims.size(); ++i) {
      const Dim wanted = scores_[i + scores_.size() - dims.size()];
      if (!graph_.IsOne(dims[i]) && !graph_.symbols.ProvenEqual(dims[i], wanted)) return false;
    }
    return true;
  }
  bool BroadcastsToScores(GraphValueId id) const {
    const std::vector<Dim>& dims = graph_.value(id).dims;
    if (dims.size() > scores_.size()) return false;
    for (size_t i = 0; i < dims.size(); ++i) {
      const Dim wanted = scores_[i + scores_.size() - dims.size()];
      if (!graph_.IsOne(dims[i]) && !graph_.symbols.ProvenEqual(dims[i], wanted)) return false;
    }
    return true;
  }

  // Collects the nodes from the product of scores up to `id`, in dependency order.
  bool Walk(GraphValueId id, std::vector<int32_t>& nodes) const {
    const int32_t maker = MakerOf(id);
    if (maker < 0 || !IsPrivate(id) || !graph_.SameDims(graph_.value(id).dims, scores_)) return false;
    const GraphNode& made_by = node(maker);
    if (made_by.op == TensorOp::kMatMul) {
      const GraphValueId q = made_by.inputs[0], k = made_by.inputs[1];
      if (!IsRows(q) || !IsMatrices(k) || !Broadcasts(q) || !Broadcasts(k)) return false;
      nodes.push_back(maker);
      return true;
    }
    if (!IsScoreOp(made_by.op) || nodes.size() >= kBetweenMax) return false;
    for (size_t i = 0; i < made_by.inputs.size(); ++i) {
      std::vector<int32_t> before;
      if (made_by.inputs[i] < 0 || !Walk(made_by.inputs[i], before)) continue;
      for (size_t other = 0; other < made_by.inputs.size(); ++other)
        if (other != i && !BroadcastsToScores(made_by.inputs[other])) return false;
      nodes = std::move(before);
      nodes.push_back(maker);
      return true;
    }
    return false;
  }

  const Graph& graph_;
  std::vector<int> readers_;
  std::vector<Dim> scores_;
};

}  // namespace

std::vector<AttentionPattern> FindAttention(const Graph& graph) {
  return Finder(graph).Run();
}

}  // namespace kiln::ir
