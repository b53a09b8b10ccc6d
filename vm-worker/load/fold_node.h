// What a node becomes when its result is known at load.
#pragma once

#include <optional>
#include <vector>

#include "vm-worker/load/value_facts.h"

namespace kiln {

// Either one tensor per output, or (one output) dims for a ShapeVector.
struct FoldedNode {
  std::vector<Tensor> tensors;
  KnownValues dims;
  bool scalar = false;

  bool is_constant() const { return !tensors.empty(); }
};

// nullopt: the node has to run. `node_facts` is what InferNode said of the node.
std::optional<FoldedNode> FoldNode(const Program& program, const Node& node, const NodeFacts& node_facts,
                                   const ValueFacts& facts);

// The node that a folded output becomes, apart from its output id.
Node ConstantNodeOf(ConstantId constant, std::string name);
Node ShapeVectorNodeOf(const FoldedNode& folded, std::string name);

}  // namespace kiln
