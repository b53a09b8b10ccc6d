// If, Loop and Scan. Bodies are imported into regions; what their outputs look like outside follows here.
#include <algorithm>

#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/graph_importer.h"
#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {
namespace {

Result<GraphProto*> GraphAttribute(NodeContext& node, std::string_view name) {
  AttributeProto* attribute = node.attributes.Find(name);
  if (attribute == nullptr) return Fail(ErrorCode::kMalformed, "the node lacks its graph '" + std::string(name) + "'");
  return attribute->mutable_g();
}

// Symbols made inside a region mean nothing outside it.
bool VisibleOutside(const SymbolTable& symbols, Dim dim, size_t outer_symbols) {
  if (dim.is_const()) return true;
  const std::vector<SymbolId> used = symbols.SymbolsOf(dim);
  return used.empty() || static_cast<size_t>(used.back()) < outer_symbols;
}

TensorDesc SeenFromOutside(SymbolTable& symbols, TensorDesc desc, size_t outer_symbols) {
  if (!desc.dims) return desc;
  for (Dim& dim : *desc.dims) {
    if (!VisibleOutside(symbols, dim, outer_symbols)) dim = symbols.FreshSymbol();
  }
  return desc;
}

struct Branch {
  RegionId region;
  ValueList outputs;
};

Result<Branch> ImportBranch(NodeContext& node, std::string_view name) {
  ASSIGN_OR_RETURN(GraphProto* const graph, GraphAttribute(node, name));
  const RegionId region = node.b.OpenRegion();
  ASSIGN_OR_RETURN(ValueList outputs, node.importer.ImportBody(*graph, node.scope, {}));
  ASSIGN_OR_RETURN(outputs, node.b.CloseRegion(std::move(outputs)));
  return Branch{region, std::move(outputs)};
}

// The state of a loop as its body sees it. `open` marks dims (and whole ranks) that change from trip to trip.
struct StateShape {
  TensorDesc desc;
  bool rank_open = false;
  std::vector<bool> open;

  explicit StateShape(TensorDesc initial) : desc(std::move(initial)) {
    desc.alignment = AlignmentClass::k64;
    rank_open = !desc.has_rank();
    if (desc.has_rank()) open.resize(desc.dims->size(), false);
  }
  // Opens what `next`, the body's output, does not keep. Returns whether anything was opened.
  Result<bool> Widen(const SymbolTable& symbols, const TensorDesc& next, size_t outer_symbols) {
    if (next.dtype != desc.dtype) {
      return Fail(ErrorCode::kShapeMismatch, "a loop state begins as " + std::string(DTypeName(desc.dtype)) +
                                                 " and its body gives " + std::string(DTypeName(next.dtype)));
    }
    if (rank_open) return false;
    if (!next.has_rank() || next.rank() != desc.rank()) {
      rank_open = true;
      desc.dims.reset();
      return true;
    }
    bool opened = false;
    for (size_t i = 0; i < open.size(); ++i) {
      const bool kept = (*next.dims)[i] == (*desc.dims)[i] && VisibleOutside(symbols, (*next.dims)[i], outer_symbols);
      if (open[i] || kept) continue;
      open[i] = opened = true;
    }
    return opened;
  }
  TensorDesc Now(SymbolTable& symbols) const {
    TensorDesc now = desc;
    for (size_t i = 0; now.dims && i < open.size(); ++i) {
      if (open[i]) (*now.dims)[i] = symbols.FreshSymbol();
    }
    return now;
  }
};

struct LoopBody {
  RegionId region;
  std::vector<TensorDesc> outputs;  // as the body gives them
  size_t outer_symbols;
};

// Imports a body until its states' shapes hold from trip to trip. `leading` and `trailing` are the descs of the
// region's other inputs; `first_state_output` says where the body's outputs hold the states.
Result<LoopBody> ImportLoopBody(NodeContext& node, GraphProto& graph, const std::vector<TensorDesc>& leading,
                                std::vector<StateShape>& states, const std::vector<TensorDesc>& trailing,
                                size_t first_state_output) {
  ProgramBuilder& b = node.b;
  const size_t input_count = leading.size() + states.size() + trailing.size();
  if (static_cast<size_t>(graph.input_size()) != input_count) {
    return Fail(ErrorCode::kMalformed, "the body has " + std::to_string(graph.input_size()) +
                                           " inputs where the node "
                                           "passes " +
                                           std::to_string(input_count));
  }
  while (true) {
    ProgramBuilder::Snapshot snapshot = b.Save();
    const size_t outer_symbols = b.symbols().symbol_count();
    LoopBody body{.region = b.OpenRegion(), .outer_symbols = outer_symbols};
    ValueList inputs;
    const auto add = [&](TensorDesc desc) {
      const std::string& name = graph.input(static_cast<int>(inputs.size())).name();
      inputs.push_back(b.AddRegionInput(name, std::move(desc)));
    };
    for (const TensorDesc& desc : leading) add(desc);
    for (const StateShape& state : states) add(state.Now(b.symbols()));
    for (const TensorDesc& desc : trailing) add(desc);
    ASSIGN_OR_RETURN(ValueList outputs, node.importer.ImportBody(graph, node.scope, inputs));
    if (outputs.size() < first_state_output + states.size()) {
      return Fail(ErrorCode::kMalformed, "the body has " + std::to_string(outputs.size()) +
                                             " outputs, fewer than its " + std::to_string(states.size()) +
                                             " states need");
    }
    ASSIGN_OR_RETURN(outputs, b.CloseRegion(std::move(outputs)));
    bool widened = false;
    for (size_t i = 0; i < states.size(); ++i) {
      const ValueId output = outputs[first_state_output + i];
      ASSIGN_OR_RETURN(const bool opened, states[i].Widen(b.symbols(), b.Desc(output), outer_symbols));
      widened = widened || opened;
    }
    if (!widened) {
      for (ValueId output : outputs) body.outputs.push_back(b.Desc(output));
      return body;
    }
    b.Restore(std::move(snapshot));
  }
}

Status CheckOutputCount(const NodeContext& node, size_t count) {
  if (static_cast<size_t>(node.outputs) <= count) return {};
  return Fail(ErrorCode::kMalformed, "the node has " + std::to_string(node.outputs) + " outputs where its body gives " +
                                         std::to_string(count));
}

// A list attribute with one entry per scan input or output; absent means zeros.
Result<std::vector<int64_t>> PerScan(const NodeContext& node, std::string_view name, size_t count) {
  std::vector<int64_t> values = node.attributes.Ints(name).value_or(std::vector<int64_t>(count, 0));
  if (values.size() == count) return values;
  return Fail(ErrorCode::kMalformed, std::string(name) + " has " + std::to_string(values.size()) + " entries where " +
                                         std::to_string(count) + " are needed");
}

Result<int64_t> AxisIn(int64_t axis, int rank) {
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  return Fail(ErrorCode::kShapeMismatch,
              "scan axis " + std::to_string(axis) + " is outside rank " + std::to_string(rank));
}

}  // namespace

Result<TensorDesc> MergeBranches(SymbolTable& symbols, const TensorDesc& a, const TensorDesc& b, size_t outer_symbols) {
  if (a.dtype != b.dtype) {
    return Fail(ErrorCode::kShapeMismatch, "one branch gives " + std::string(DTypeName(a.dtype)) + ", the other " +
                                               std::string(DTypeName(b.dtype)));
  }
  TensorDesc merged{.dtype = a.dtype};
  if (!a.dims || !b.dims || a.dims->size() != b.dims->size()) return merged;
  merged.dims.emplace();
  for (size_t i = 0; i < a.dims->size(); ++i) {
    const bool same = (*a.dims)[i] == (*b.dims)[i] && VisibleOutside(symbols, (*a.dims)[i], outer_symbols);
    merged.dims->push_back(same ? (*a.dims)[i] : symbols.FreshSymbol());
  }
  return merged;
}

// A condition that is known at load leaves only its branch.
Result<ValueList> IfNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  if (node.DTypeOf(node.In(0)) != DType::kBool) return Fail(ErrorCode::kShapeMismatch, "the condition must be bool");
  if (const auto known = node.b.KnownInts(node.In(0)); known && known->size() == 1) {
    ASSIGN_OR_RETURN(GraphProto* const taken, GraphAttribute(node, (*known)[0] != 0 ? "then_branch" : "else_branch"));
    ASSIGN_OR_RETURN(ValueList outputs, node.importer.ImportBody(*taken, node.scope, {}));
    RETURN_IF_ERROR(CheckOutputCount(node, outputs.size()));
    return outputs;
  }
  SymbolTable& symbols = node.b.symbols();
  const size_t outer_symbols = symbols.symbol_count();
  ASSIGN_OR_RETURN(const Branch then_branch, ImportBranch(node, "then_branch"));
  ASSIGN_OR_RETURN(const Branch else_branch, ImportBranch(node, "else_branch"));
  if (then_branch.outputs.size() != else_branch.outputs.size()) {
    return Fail(ErrorCode::kMalformed, "the branches give " + std::to_string(then_branch.outputs.size()) + " and " +
                                           std::to_string(else_branch.outputs.size()) + " outputs");
  }
  RETURN_IF_ERROR(CheckOutputCount(node, then_branch.outputs.size()));
  std::vector<TensorDesc> descs;
  for (size_t i = 0; i < then_branch.outputs.size(); ++i) {
    ASSIGN_OR_RETURN(TensorDesc merged, MergeBranches(symbols, node.b.Desc(then_branch.outputs[i]),
                                                      node.b.Desc(else_branch.outputs[i]), outer_symbols));
    descs.push_back(std::move(merged));
  }
  return node.b.EmitControl(TensorOp::kIf, {node.In(0)}, {}, {then_branch.region, else_branch.region},
                            std::move(descs));
}

// Inputs: trip count, condition, states. Body: iteration, condition, states -> condition, states, one slice per scan
// output.
Result<ValueList> LoopNode(NodeContext& node) {
  ASSIGN_OR_RETURN(GraphProto* const graph, GraphAttribute(node, "body"));
  std::vector<StateShape> states;
  for (size_t i = 2; i < node.inputs.size(); ++i) {
    if (!node.Has(i)) return Fail(ErrorCode::kMalformed, "loop state " + std::to_string(i - 2) + " is missing");
    states.emplace_back(node.b.Desc(node.In(i)));
  }
  const std::vector<TensorDesc> leading = {StaticDesc(DType::kI64, Dims{}), StaticDesc(DType::kBool, Dims{})};
  ASSIGN_OR_RETURN(const LoopBody body, ImportLoopBody(node, *graph, leading, states, {}, 1));
  SymbolTable& symbols = node.b.symbols();
  std::vector<TensorDesc> descs;
  for (const StateShape& state : states) descs.push_back(state.Now(symbols));
  const Dim trips = symbols.FreshSymbol();
  for (size_t i = 1 + states.size(); i < body.outputs.size(); ++i) {
    TensorDesc desc = SeenFromOutside(symbols, body.outputs[i], body.outer_symbols);
    if (desc.dims) desc.dims->insert(desc.dims->begin(), trips);
    if (desc.dims && desc.rank() > limits::kRankMax) {
      return Fail(ErrorCode::kLimitExceeded, "a scan output has rank " + std::to_string(desc.rank()));
    }
    descs.push_back(std::move(desc));
  }
  RETURN_IF_ERROR(CheckOutputCount(node, descs.size()));
  ValueList inputs = node.inputs;
  inputs.resize(std::max<size_t>(inputs.size(), 2), kNoValue);
  return node.b.EmitControl(TensorOp::kLoop, std::move(inputs), {}, {body.region}, std::move(descs));
}

// Inputs: states, then scan inputs, which the body sees one slice at a time.
Result<ValueList> ScanNode(NodeContext& node) {
  ASSIGN_OR_RETURN(GraphProto* const graph, GraphAttribute(node, "body"));
  const int64_t scans = node.attributes.Int("num_scan_inputs", 0);
  if (scans < 1 || static_cast<size_t>(scans) > node.inputs.size()) {
    return Fail(ErrorCode::kMalformed, "num_scan_inputs is " + std::to_string(scans) + " of " +
                                           std::to_string(node.inputs.size()) + " inputs");
  }
  RETURN_IF_ERROR(node.Require(node.inputs.size()));
  const size_t scan_count = static_cast<size_t>(scans);
  const size_t state_count = node.inputs.size() - scan_count;
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, PerScan(node, "scan_input_axes", scan_count));
  std::vector<StateShape> states;
  for (size_t i = 0; i < state_count; ++i) states.emplace_back(node.b.Desc(node.In(i)));
  std::vector<TensorDesc> slices;
  std::optional<Dim> length;
  for (size_t i = 0; i < scan_count; ++i) {
    TensorDesc slice = node.b.Desc(node.In(state_count + i));
    if (slice.dims) {
      ASSIGN_OR_RETURN(axes[i], AxisIn(axes[i], slice.rank()));
      const auto position = slice.dims->begin() + axes[i];
      if (!length || !length->is_const()) length = *position;
      slice.dims->erase(position);
    }
    slices.push_back(std::move(slice));
  }
  ASSIGN_OR_RETURN(const LoopBody body, ImportLoopBody(node, *graph, {}, states, slices, 0));
  const size_t output_scans = body.outputs.size() - state_count;
  ASSIGN_OR_RETURN(std::vector<int64_t> output_axes, PerScan(node, "scan_output_axes", output_scans));
  SymbolTable& symbols = node.b.symbols();
  if (!length) length = symbols.FreshSymbol();
  std::vector<TensorDesc> descs;
  for (const StateShape& state : states) descs.push_back(state.Now(symbols));
  for (size_t i = 0; i < output_scans; ++i) {
    TensorDesc desc = SeenFromOutside(symbols, body.outputs[state_count + i], body.outer_symbols);
    if (desc.dims) {
      if (desc.rank() + 1 > limits::kRankMax) return Fail(ErrorCode::kLimitExceeded, "a scan output has too many dims");
      ASSIGN_OR_RETURN(output_axes[i], AxisIn(output_axes[i], desc.rank() + 1));
      desc.dims->insert(desc.dims->begin() + output_axes[i], *length);
    }
    descs.push_back(std::move(desc));
  }
  RETURN_IF_ERROR(CheckOutputCount(node, descs.size()));
  ASSIGN_OR_RETURN(const std::vector<int64_t> directions, PerScan(node, "scan_input_directions", scan_count));
  ASSIGN_OR_RETURN(const std::vector<int64_t> output_directions, PerScan(node, "scan_output_directions", output_scans));
  Attributes attributes;
  attributes.Set("num_scan_inputs", scans);
  attributes.Set("scan_input_axes", axes);
  attributes.Set("scan_input_directions", directions);
  attributes.Set("scan_output_axes", output_axes);
  attributes.Set("scan_output_directions", output_directions);
  return node.b.EmitControl(TensorOp::kScan, node.inputs, std::move(attributes), {body.region}, std::move(descs));
}

}  // namespace kiln::onnx
