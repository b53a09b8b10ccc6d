#include "compile-service/passes/rewriter.h"

namespace kiln::passes {

using ir::GraphValueId;

std::vector<ir::GraphNode> Rewriter::TakeNodes() {
  return std::move(graph_.nodes);
}

void Rewriter::Begin(ir::GraphNode& node) {
  for (GraphValueId& input : node.inputs) input = Resolve(input);
  sources_ = node.sources;
}

void Rewriter::Keep(ir::GraphNode node) {
  nodes_.push_back(std::move(node));
}

GraphValueId Rewriter::Emit(TensorOp op, std::vector<GraphValueId> inputs, std::vector<Dim> dims, Attributes attributes,
                            GraphValueId into) {
  changed_ = true;
  bool prepack = true;
  for (GraphValueId input : inputs) prepack = prepack && (input < 0 || graph_.value(input).prepack);
  for (Dim dim : dims) prepack = prepack && dim.is_const();
  const bool fresh = into < 0;
  const GraphValueId output = fresh ? graph_.AddValue(graph_.value(inputs[0]).dtype, std::move(dims)) : into;
  graph_.value(output).origin = ir::Origin::kNode;
  if (fresh) graph_.value(output).prepack = prepack;
  nodes_.push_back({op, std::move(attributes), std::move(inputs), {output}, sources_});
  return output;
}

GraphValueId Rewriter::Unary(TensorOp op, GraphValueId a, GraphValueId into) {
  return Emit(op, {a}, graph_.value(a).dims, {}, into);
}

GraphValueId Rewriter::Binary(TensorOp op, GraphValueId a, GraphValueId b, GraphValueId into) {
  const bool second = graph_.value(b).rank() > graph_.value(a).rank();
  std::vector<Dim> dims = graph_.value(second ? b : a).dims;
  const std::vector<Dim>& other = graph_.value(second ? a : b).dims;
  for (size_t i = dims.size(), j = other.size(); j > 0;) {
    --i, --j;
    if (graph_.IsOne(dims[i])) dims[i] = other[j];
  }
  return Emit(op, {a, b}, std::move(dims), {}, into);
}

GraphValueId Rewriter::Reshape(GraphValueId a, std::vector<Dim> dims, GraphValueId into) {
  return Emit(TensorOp::kReshape, {a}, std::move(dims), {}, into);
}

GraphValueId Rewriter::Transpose(GraphValueId a, std::vector<int64_t> perm, GraphValueId into) {
  std::vector<Dim> dims;
  for (int64_t axis : perm) dims.push_back(graph_.value(a).dims[static_cast<size_t>(axis)]);
  Attributes attributes;
  attributes.Set("perm", std::move(perm));
  return Emit(TensorOp::kTranspose, {a}, std::move(dims), std::move(attributes), into);
}

GraphValueId Rewriter::Reduce(TensorOp op, GraphValueId a, const std::vector<int>& axes, GraphValueId into) {
  std::vector<Dim> dims = graph_.value(a).dims;
  for (int axis : axes) dims[static_cast<size_t>(axis)] = Dim::Const(1);
  Attributes attributes;
  attributes.Set("axes", std::vector<int64_t>(axes.begin(), axes.end()));
  return Emit(op, {a}, std::move(dims), std::move(attributes), into);
}

void Rewriter::Replace(GraphValueId old, GraphValueId replacement) {
  changed_ = true;
  if (static_cast<size_t>(old) >= replaced_.size()) replaced_.resize(graph_.values.size(), -1);
  replaced_[static_cast<size_t>(old)] = replacement;
}

GraphValueId Rewriter::Resolve(GraphValueId id) const {
  while (id >= 0 && static_cast<size_t>(id) < replaced_.size() && replaced_[static_cast<size_t>(id)] >= 0) {
    id = replaced_[static_cast<size_t>(id)];
  }
  return id;
}

void Rewriter::Finish() {
  graph_.nodes = std::move(nodes_);
  for (GraphValueId& output : graph_.outputs) output = Resolve(output);
  graph_.Renumber();
}

}  // namespace kiln::passes
