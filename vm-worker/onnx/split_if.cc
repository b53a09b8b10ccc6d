// Ifs that decide the rank of what follows, as torch.squeeze is exported: the rest of the graph is imported into both
// branches, once with each rank.
#include <algorithm>

#include "common/base/limits.h"
#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/graph_importer.h"

namespace kiln::onnx {

namespace {

bool IsIf(const NodeProto& node) {
  return node.op_type() == "If" && (node.domain().empty() || node.domain() == "ai.onnx");
}

GraphProto* BranchOf(NodeProto& node, std::string_view name) {
  for (AttributeProto& attribute : *node.mutable_attribute()) {
    if (attribute.name() == name && attribute.has_g()) return attribute.mutable_g();
  }
  return nullptr;
}

}  // namespace

Result<ValueList> GraphImporter::ImportRest(Rest rest, Scope& scope) {
  for (; rest.next < rest.order.size(); ++rest.next) {
    NodeProto& node = *rest.graph.mutable_node(rest.order[rest.next]);
    if (!IsIf(node) || !scope.splits) {
      RETURN_IF_ERROR(VisitNode(node, scope));
      continue;
    }
    ASSIGN_OR_RETURN(std::optional<ValueList> outputs, SplitIf(node, {rest.graph, rest.order, rest.next + 1}, scope));
    if (outputs) return std::move(*outputs);
  }
  ValueList outputs;
  for (const ValueInfoProto& info : rest.graph.output()) {
    const ValueId* value = scope.Find(info.name());
    if (value == nullptr || *value == kNoValue) {
      return Fail(ErrorCode::kMalformed,
                  "output '" + info.name() + "' of graph '" + rest.graph.name() + "' is not produced by any node");
    }
    outputs.push_back(*value);
  }
  return outputs;
}

bool GraphImporter::LosesRank(const NodeProto& node, const Scope& scope) {
  const Node& made = builder_.last_node();
  if (made.op != TensorOp::kIf) return false;
  const Function& function = builder_.program().entry();
  const auto desc = [&](ValueId value) -> const TensorDesc& {
    return function.values[static_cast<size_t>(value)].desc;
  };
  const auto output = [&](size_t branch, size_t i) -> const TensorDesc& {
    return desc(function.regions[static_cast<size_t>(made.regions[branch])].outputs[i]);
  };
  for (const std::string& name : node.output()) {
    const ValueId* value = scope.Find(name);
    const auto found = std::ranges::find(made.outputs, value == nullptr ? kNoValue : *value);
    if (found == made.outputs.end()) continue;
    const auto i = static_cast<size_t>(found - made.outputs.begin());
    if (!desc(*found).has_rank() && output(0, i).has_rank() && output(1, i).has_rank()) return true;
  }
  return false;
}

std::optional<GraphImporter::Side> GraphImporter::ImportSide(NodeProto& node, std::string_view branch, const Rest& rest,
                                                             const Scope& scope) {
  ProgramBuilder::Snapshot snapshot = builder_.Save();
  const auto import = [&]() -> Result<Side> {
    GraphProto* const graph = BranchOf(node, branch);
    if (graph == nullptr) return Fail(ErrorCode::kMalformed, "the node lacks a branch");
    const RegionId region = builder_.OpenRegion();
    ASSIGN_OR_RETURN(const ValueList made, ImportBody(*graph, scope, {}, BodyRuns::kMaybe));
    Scope inner{.parent = &scope,
                .opsets = scope.opsets,
                .bindings = scope.bindings,
                .depth = scope.depth + 1,
                .needed = scope.needed};
    for (size_t i = 0; i < made.size() && i < static_cast<size_t>(node.output_size()); ++i) {
      if (!node.output(static_cast<int>(i)).empty()) inner.values[node.output(static_cast<int>(i))] = made[i];
    }
    ASSIGN_OR_RETURN(ValueList outputs, ImportRest(rest, inner));
    ASSIGN_OR_RETURN(outputs, builder_.CloseRegion(std::move(outputs)));
    return Side{region, std::move(outputs)};
  };
  Result<Side> side = import();
  if (side.has_value()) return std::move(*side);
  builder_.Restore(std::move(snapshot));
  return std::nullopt;
}

Result<GraphImporter::Side> GraphImporter::ImportWhole(NodeProto& node, const Rest& rest, const Scope& scope) {
  Scope inner{.parent = &scope,
              .opsets = scope.opsets,
              .bindings = scope.bindings,
              .depth = scope.depth + 1,
              .splits = false,
              .needed = scope.needed};
  const RegionId region = builder_.OpenRegion();
  RETURN_IF_ERROR(VisitNode(node, inner));
  ASSIGN_OR_RETURN(ValueList outputs, ImportRest(rest, inner));
  ASSIGN_OR_RETURN(outputs, builder_.CloseRegion(std::move(outputs)));
  return Side{region, std::move(outputs)};
}

Result<std::optional<ValueList>> GraphImporter::SplitIf(NodeProto& node, const Rest& rest, Scope& scope) {
  ProgramBuilder::Snapshot before = builder_.Save();
  RETURN_IF_ERROR(VisitNode(node, scope));
  if (rest.next == rest.order.size() || splits_ >= limits::kIfSplitsMax || scope.depth + 2 >= limits::kRegionDepthMax ||
      !LosesRank(node, scope)) {
    return std::nullopt;
  }
  ++splits_;
  for (const std::string& name : node.output()) scope.values.erase(name);
  builder_.Restore(std::move(before));
  const ValueId condition = *scope.Find(node.input(0));
  SymbolTable& symbols = builder_.symbols();
  const size_t outer_symbols = symbols.symbol_count();
  std::optional<Side> then_side = ImportSide(node, "then_branch", rest, scope);
  std::optional<Side> else_side = ImportSide(node, "else_branch", rest, scope);
  if (!then_side && !else_side) {
    RETURN_IF_ERROR(VisitNode(node, scope));
    return std::nullopt;
  }
  for (std::optional<Side>* side : {&then_side, &else_side}) {
    if (*side) continue;
    ASSIGN_OR_RETURN(*side, ImportWhole(node, rest, scope));
  }
  std::vector<TensorDesc> descs;
  for (size_t i = 0; i < then_side->outputs.size(); ++i) {
    ASSIGN_OR_RETURN(TensorDesc merged, MergeBranches(symbols, builder_.Desc(then_side->outputs[i]),
                                                      builder_.Desc(else_side->outputs[i]), outer_symbols));
    descs.push_back(std::move(merged));
  }
  builder_.SetNodeName(node.name().empty() ? node.output(0) : node.name());
  return builder_.EmitControl(TensorOp::kIf, {condition}, {}, {then_side->region, else_side->region}, std::move(descs));
}

}  // namespace kiln::onnx
