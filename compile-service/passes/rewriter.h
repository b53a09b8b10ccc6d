// Rewriter: rebuilds a graph's node list front to back, replacing nodes by sequences and values by others.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include "compile-service/ir/graph.h"

namespace kiln::passes {

// Used as: for each node of TakeNodes(): Begin(node), then Keep(node), or Emit… the replacement. Finish() installs the
// result.
class Rewriter {
 public:
  explicit Rewriter(ir::Graph& graph) : graph_(graph) {}

  std::vector<ir::GraphNode> TakeNodes();
  // Resolves replaced inputs of `node`; what is emitted next stands for its sources.
  void Begin(ir::GraphNode& node);
  void Keep(ir::GraphNode node);

  // A node with one output: a fresh value of the given dims, or the existing value `into`.
  ir::GraphValueId Emit(TensorOp op, std::vector<ir::GraphValueId> inputs, std::vector<Dim> dims,
                        Attributes attributes = {}, ir::GraphValueId into = -1);
  // Element-wise; the dims of both, each broadcast to the other: where neither is 1, those of the operand with more
  // dims, or of `a`.
  ir::GraphValueId Unary(TensorOp op, ir::GraphValueId a, ir::GraphValueId into = -1);
  ir::GraphValueId Binary(TensorOp op, ir::GraphValueId a, ir::GraphValueId b, ir::GraphValueId into = -1);
  ir::GraphValueId Reshape(ir::GraphValueId a, std::vector<Dim> dims, ir::GraphValueId into = -1);
  ir::GraphValueId Transpose(ir::GraphValueId a, std::vector<int64_t> perm, ir::GraphValueId into = -1);
  // keepdims = 1.
  ir::GraphValueId Reduce(TensorOp op, ir::GraphValueId a, const std::vector<int>& axes, ir::GraphValueId into = -1);

  // Every later use of `old` reads `replacement`.
  void Replace(ir::GraphValueId old, ir::GraphValueId replacement);
  ir::GraphValueId Resolve(ir::GraphValueId id) const;
  void Finish();
  bool changed() const { return changed_; }
  ir::Graph& graph() { return graph_; }

 private:
  ir::Graph& graph_;
  std::vector<ir::GraphNode> nodes_;
  std::vector<ir::GraphValueId> replaced_;  // per value, -1 or the replacement
  std::vector<int32_t> sources_;
  bool changed_ = false;
};

// A pass of one rule: a Rule is made from the Rewriter, before nodes are taken out of the graph, and its Run(node) says
// whether it replaced the node. Returns whether anything changed.
template <class Rule>
bool RewriteEach(ir::Graph& graph) {
  Rewriter rewriter(graph);
  Rule rule(rewriter);
  for (ir::GraphNode& node : rewriter.TakeNodes()) {
    rewriter.Begin(node);
    if (!rule.Run(node)) rewriter.Keep(std::move(node));
  }
  rewriter.Finish();
  return rewriter.changed();
}

}  // namespace kiln::passes
