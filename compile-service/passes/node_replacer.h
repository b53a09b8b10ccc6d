// What replaces one node by others: shorthand for what it reads. Private to the decomposition.
#pragma once

#include <vector>

#include "compile-service/passes/rewriter.h"

namespace kiln::passes {

class NodeReplacer {
 public:
  explicit NodeReplacer(Rewriter& rewriter) : r_(rewriter), graph_(rewriter.graph()) {}

 protected:
  static ir::GraphValueId Out(const ir::GraphNode& node) { return node.outputs[0]; }
  const std::vector<Dim>& DimsOf(ir::GraphValueId id) const { return graph_.value(id).dims; }
  int Rank(ir::GraphValueId id) const { return graph_.value(id).rank(); }
  bool Has(const ir::GraphNode& node, size_t input) const {
    return input < node.inputs.size() && node.inputs[input] >= 0;
  }

  Rewriter& r_;
  ir::Graph& graph_;
};

}  // namespace kiln::passes
