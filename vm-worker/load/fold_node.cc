#include "vm-worker/load/fold_node.h"

#include "vm-worker/load/evaluate_node.h"

namespace kiln {

std::optional<FoldedNode> FoldNode(const Program& program, const Node& node, const NodeFacts& node_facts,
                                   const ValueFacts& facts) {
  std::vector<const Tensor*> inputs;
  bool constant = true;
  for (ValueId input : node.inputs) {
    const ConstantId id = facts.ConstantOf(input);
    inputs.push_back(id < 0 ? nullptr : &program.constants[static_cast<size_t>(id)].tensor);
    constant = constant && (input == kNoValue || id >= 0);
  }
  if (constant) {
    if (auto results = EvaluateNode(program, node, inputs, node_facts.outputs)) {
      return FoldedNode{.tensors = *std::move(results)};
    }
  }
  const TensorDesc& desc = node_facts.outputs[0];
  if (node.op == TensorOp::kShapeVector || node.op == TensorOp::kConstant) return std::nullopt;
  if (node.outputs.size() != 1 || !node_facts.known[0] || !desc.is_static()) return std::nullopt;
  const KnownValues& known = *node_facts.known[0];
  Dims dims;
  for (Dim dim : *desc.dims) dims.push_back(dim.value());
  const auto elements = CheckedElements(dims, desc.dtype);
  if (!elements || *elements != static_cast<int64_t>(known.size())) return std::nullopt;
  if (auto tensor = TensorOfKnown(known, desc.dtype, dims)) {
    FoldedNode folded;
    folded.tensors.push_back(*std::move(tensor));
    return folded;
  }
  if (desc.dtype != DType::kI64 || desc.rank() > 1) return std::nullopt;
  return FoldedNode{.dims = known, .scalar = desc.rank() == 0};
}

Node ConstantNodeOf(ConstantId constant, std::string name) {
  Node node{.op = TensorOp::kConstant, .name = std::move(name)};
  node.attributes.Set("value", constant);
  return node;
}

Node ShapeVectorNodeOf(const FoldedNode& folded, std::string name) {
  Node node{.op = TensorOp::kShapeVector, .name = std::move(name)};
  node.attributes.Set("dims", folded.dims);
  if (folded.scalar) node.attributes.Set("scalar", int64_t{1});
  return node;
}

}  // namespace kiln
