// Rules by op that replace one node by others, as a table of methods: what RewriteEach takes as its Rule.
#pragma once

#include <span>
#include <vector>

#include "compile-service/passes/rewriter.h"

namespace kiln::passes {

// `Rules` derives from it and has `static std::span<const Row> Rows()`. A method returns whether it replaced the node.
template <class Rules>
class NodeTable {
 public:
  bool Run(const ir::GraphNode& node) {
    for (const Row& row : Rules::Rows()) {
      if (row.op != node.op) continue;
      if (row.f32_only && graph_.value(node.inputs[0]).dtype != DType::kF32) return false;
      return (static_cast<Rules*>(this)->*row.run)(node);
    }
    return false;
  }

 protected:
  struct Row {
    TensorOp op;
    bool f32_only;  // by the first input
    bool (Rules::*run)(const ir::GraphNode&);
  };

  explicit NodeTable(Rewriter& rewriter) : r_(rewriter), graph_(rewriter.graph()) {}

  static ir::GraphValueId Out(const ir::GraphNode& node) { return node.outputs[0]; }
  const std::vector<Dim>& DimsOf(ir::GraphValueId id) const { return graph_.value(id).dims; }
  int Rank(ir::GraphValueId id) const { return graph_.value(id).rank(); }
  static bool Has(const ir::GraphNode& node, size_t input) {
    return input < node.inputs.size() && node.inputs[input] >= 0;
  }

  Rewriter& r_;
  ir::Graph& graph_;
};

}  // namespace kiln::passes
