// If, Loop and Scan. Bodies are imported into regions; what their outputs look like outside follows here.
#include <algorithm>

#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/graph_importer.h"
#include "vm-worker/onnx/loop_state.h"
#include "vm-worker/onnx/rewrite.h"
#include "vm-worker/onnx/run_time_sequence.h"
#include "vm-worker/onnx/sequences.h"

namespace kiln::onnx {
namespace {

Result<GraphProto*> GraphAttribute(NodeContext& node, std::string_view name) {
  AttributeProto* attribute = node.attributes.Find(name);
  if (attribute == nullptr) return Fail(ErrorCode::kMalformed, "the node lacks its graph '" + std::string(name) + "'");
  return attribute->mutable_g();
}

// An output of a branch: a tensor, or a sequence in a form, or (`length` is not negative) one known element by element.
struct BranchOutput {
  bool is_sequence = false;
  int64_t length = -1;
  SequenceForm form = {};
  size_t first = 0, count = 1;  // the region's outputs that it is made of
};

struct Branch {
  RegionId region;
  ValueList outputs;
  std::vector<BranchOutput> made;
};

using Forms = std::vector<std::optional<KeptForm>>;  // per output of a branch, where one is wanted

// Puts a sequence that a branch gives among its outputs.
Status AddSequenceOutput(ProgramBuilder& b, ValueId handle, const std::optional<KeptForm>& wanted, size_t outer_symbols,
                         BranchOutput& made, ValueList& outputs) {
  const ImportedSequence& sequence = b.Sequence(handle);
  made.is_sequence = true;
  made.form = {.dtype = sequence.dtype};
  ValueList parts = sequence.elements;
  if (!wanted && !sequence.run_time) {
    made.length = static_cast<int64_t>(parts.size());
  } else {
    ASSIGN_OR_RETURN(made.form, wanted ? wanted->Of(b.symbols()) : FormOf(b, sequence, outer_symbols));
    ASSIGN_OR_RETURN(parts, PartsIn(b, sequence, made.form));
  }
  made.count = parts.size();
  outputs.insert(outputs.end(), parts.begin(), parts.end());
  return {};
}

Result<Branch> ImportBranch(NodeContext& node, std::string_view name, const Forms& wanted, size_t outer_symbols) {
  ASSIGN_OR_RETURN(GraphProto* const graph, GraphAttribute(node, name));
  const RegionId region = node.b.OpenRegion();
  ASSIGN_OR_RETURN(const ValueList outputs, node.importer.ImportBody(*graph, node.scope, {}, BodyRuns::kMaybe));
  Branch branch{.region = region};
  for (size_t i = 0; i < outputs.size(); ++i) {
    BranchOutput made{.first = branch.outputs.size()};
    if (IsSequence(outputs[i])) {
      RETURN_IF_ERROR(AddSequenceOutput(node.b, outputs[i], i < wanted.size() ? wanted[i] : std::nullopt, outer_symbols,
                                        made, branch.outputs));
    } else {
      branch.outputs.push_back(outputs[i]);
    }
    branch.made.push_back(std::move(made));
  }
  ASSIGN_OR_RETURN(branch.outputs, node.b.CloseRegion(std::move(branch.outputs)));
  return branch;
}

// The form that output `made` of a branch has or, known element by element, would have.
Result<SequenceForm> FormOfOutput(const ProgramBuilder& b, const Branch& branch, const BranchOutput& made,
                                  size_t outer_symbols) {
  if (made.length < 0) return made.form;
  const auto first = branch.outputs.begin() + static_cast<std::ptrdiff_t>(made.first);
  const ImportedSequence sequence{.elements = ValueList(first, first + made.length), .dtype = made.form.dtype};
  return FormOf(b, sequence, outer_symbols);
}

// Forms that both branches' sequences fit in, where they do not agree; empty when all do.
Result<Forms> CommonForms(const ProgramBuilder& b, const Branch& one, const Branch& other, size_t outer_symbols) {
  if (one.made.size() != other.made.size()) {
    return Fail(ErrorCode::kMalformed, "the branches give " + std::to_string(one.made.size()) + " and " +
                                           std::to_string(other.made.size()) + " outputs");
  }
  Forms forms(one.made.size());
  bool agree = true;
  for (size_t i = 0; i < forms.size(); ++i) {
    const BranchOutput& x = one.made[i];
    const BranchOutput& y = other.made[i];
    if (x.is_sequence != y.is_sequence) {
      return Fail(ErrorCode::kMalformed, "one branch gives a sequence, the other a tensor");
    }
    if (x.length == y.length && x.form == y.form) continue;
    agree = false;
    ASSIGN_OR_RETURN(const SequenceForm a, FormOfOutput(b, one, x, outer_symbols));
    ASSIGN_OR_RETURN(const SequenceForm c, FormOfOutput(b, other, y, outer_symbols));
    ASSIGN_OR_RETURN(const SequenceForm form, Join(a, c));
    forms[i].emplace(b.symbols(), form);
  }
  return agree ? Forms() : forms;
}

// What the node's outputs are when the region's are `values`.
ValueList Gathered(ProgramBuilder& b, const Branch& branch, const ValueList& values) {
  ValueList outputs;
  for (const BranchOutput& made : branch.made) {
    const std::span<const ValueId> parts = std::span(values).subspan(made.first, made.count);
    if (!made.is_sequence) {
      outputs.push_back(parts[0]);
    } else if (made.length < 0) {
      outputs.push_back(FromParts(b, made.form, parts));
    } else {
      outputs.push_back(b.AddSequence({.elements = ValueList(parts.begin(), parts.end()), .dtype = made.form.dtype}));
    }
  }
  return outputs;
}

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
    ASSIGN_OR_RETURN(ValueList outputs, node.importer.ImportBody(graph, node.scope, inputs, BodyRuns::kMaybe));
    if (std::ranges::any_of(outputs, IsSequence)) {
      return Fail(ErrorCode::kUnsupported, "a sequence as state or scan output that begins as a tensor");
    }
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
  if (IsSequence(node.In(0))) return Fail(ErrorCode::kMalformed, "the condition must be a tensor");
  if (node.DTypeOf(node.In(0)) != DType::kBool) return Fail(ErrorCode::kShapeMismatch, "the condition must be bool");
  if (const auto known = node.b.KnownInts(node.In(0)); known && known->size() == 1) {
    ASSIGN_OR_RETURN(GraphProto* const taken, GraphAttribute(node, (*known)[0] != 0 ? "then_branch" : "else_branch"));
    ASSIGN_OR_RETURN(ValueList outputs, node.importer.ImportBody(*taken, node.scope, {}, BodyRuns::kWithItsNode));
    RETURN_IF_ERROR(CheckOutputCount(node, outputs.size()));
    return outputs;
  }
  SymbolTable& symbols = node.b.symbols();
  const size_t outer_symbols = symbols.symbol_count();
  ProgramBuilder::Snapshot before = node.b.Save();
  ASSIGN_OR_RETURN(Branch then_branch, ImportBranch(node, "then_branch", {}, outer_symbols));
  ASSIGN_OR_RETURN(Branch else_branch, ImportBranch(node, "else_branch", {}, outer_symbols));
  ASSIGN_OR_RETURN(const Forms forms, CommonForms(node.b, then_branch, else_branch, outer_symbols));
  if (!forms.empty()) {
    node.b.Restore(std::move(before));
    ASSIGN_OR_RETURN(then_branch, ImportBranch(node, "then_branch", forms, outer_symbols));
    ASSIGN_OR_RETURN(else_branch, ImportBranch(node, "else_branch", forms, outer_symbols));
  }
  RETURN_IF_ERROR(CheckOutputCount(node, then_branch.made.size()));
  std::vector<TensorDesc> descs;
  for (size_t i = 0; i < then_branch.outputs.size(); ++i) {
    ASSIGN_OR_RETURN(TensorDesc merged, MergeBranches(symbols, node.b.Desc(then_branch.outputs[i]),
                                                      node.b.Desc(else_branch.outputs[i]), outer_symbols));
    descs.push_back(std::move(merged));
  }
  const ValueList values =
      node.b.EmitControl(TensorOp::kIf, {node.In(0)}, {}, {then_branch.region, else_branch.region}, std::move(descs));
  return Gathered(node.b, then_branch, values);
}

// Inputs: trip count, condition, states. Body: iteration, condition, states -> condition, states, one slice per scan
// output.
Result<ValueList> LoopNode(NodeContext& node) {
  ASSIGN_OR_RETURN(GraphProto* const graph, GraphAttribute(node, "body"));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!IsSequence(node.inputs[i])) continue;
    if (i < 2) return Fail(ErrorCode::kMalformed, "the trip count and the condition must be tensors");
    ProgramBuilder::Snapshot snapshot = node.b.Save();
    const std::string name = node.b.node_name();
    Result<std::optional<ValueList>> unrolled = UnrolledLoop(node, *graph);
    const bool too_long = !unrolled.has_value() && unrolled.error().code == ErrorCode::kLimitExceeded;
    if (!too_long) {
      if (!unrolled.has_value()) return std::unexpected(unrolled.error());
      if (*unrolled) return **std::move(unrolled);
    }
    node.b.Restore(std::move(snapshot));
    node.b.SetNodeName(name);
    return LoopOverSequences(node, *graph);
  }
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

namespace {

// What a Scan node says beside its inputs; lists hold one entry per scan input or output.
struct ScanForm {
  size_t scans = 0;  // the last inputs are scanned, those before are states
  std::vector<int64_t> axes, directions;
  bool first_axes = false;  // outputs are stacked along axis 0, forwards, whatever the node's attributes say
};

Result<size_t> ScanCount(const NodeContext& node, size_t inputs) {
  const int64_t scans = node.attributes.Int("num_scan_inputs", 0);
  if (scans >= 1 && static_cast<size_t>(scans) <= inputs) return static_cast<size_t>(scans);
  return Fail(ErrorCode::kMalformed,
              "num_scan_inputs is " + std::to_string(scans) + " of " + std::to_string(inputs) + " inputs");
}

void SetScanAttributes(Attributes& attributes, const ScanForm& form, std::vector<int64_t> output_axes,
                       std::vector<int64_t> output_directions) {
  attributes.Set("num_scan_inputs", static_cast<int64_t>(form.scans));
  attributes.Set("scan_input_axes", form.axes);
  attributes.Set("scan_input_directions", form.directions);
  attributes.Set("scan_output_axes", std::move(output_axes));
  attributes.Set("scan_output_directions", std::move(output_directions));
}

// One Scan over `inputs`: states, then scan inputs, which the body sees one slice at a time.
Result<ValueList> EmitScan(NodeContext& node, ValueList inputs, ScanForm form) {
  ASSIGN_OR_RETURN(GraphProto* const graph, GraphAttribute(node, "body"));
  const size_t state_count = inputs.size() - form.scans;
  std::vector<StateShape> states;
  for (size_t i = 0; i < state_count; ++i) states.emplace_back(node.b.Desc(inputs[i]));
  std::vector<TensorDesc> slices;
  std::optional<Dim> length;
  for (size_t i = 0; i < form.scans; ++i) {
    TensorDesc slice = node.b.Desc(inputs[state_count + i]);
    if (slice.dims) {
      ASSIGN_OR_RETURN(form.axes[i], AxisIn(form.axes[i], slice.rank()));
      const auto position = slice.dims->begin() + form.axes[i];
      if (!length || !length->is_const()) length = *position;
      slice.dims->erase(position);
    }
    slices.push_back(std::move(slice));
  }
  ASSIGN_OR_RETURN(const LoopBody body, ImportLoopBody(node, *graph, {}, states, slices, 0));
  const size_t output_scans = body.outputs.size() - state_count;
  std::vector<int64_t> output_axes(output_scans, 0), output_directions(output_scans, 0);
  if (!form.first_axes) {
    ASSIGN_OR_RETURN(output_axes, PerScan(node, "scan_output_axes", output_scans));
    ASSIGN_OR_RETURN(output_directions, PerScan(node, "scan_output_directions", output_scans));
  }
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
  Attributes attributes;
  SetScanAttributes(attributes, form, std::move(output_axes), std::move(output_directions));
  return node.b.EmitControl(TensorOp::kScan, std::move(inputs), std::move(attributes), {body.region}, std::move(descs));
}

// `value` with its first axis filled up with zeros to the length of `like`'s.
Result<ValueId> FillUpLike(ProgramBuilder& b, ValueId value, ValueId like) {
  ASSIGN_OR_RETURN(const ValueId have, DimOf(b, value, 0));
  ASSIGN_OR_RETURN(const ValueId want, DimOf(b, like, 0));
  ASSIGN_OR_RETURN(const ValueId missing, b.EmitOne(TensorOp::kSub, {want, have}));
  const int64_t zero[] = {0};
  Attributes along;
  along.Set("axis", int64_t{0});
  ASSIGN_OR_RETURN(const ValueId pads, b.EmitOne(TensorOp::kConcat, {b.EmitInts(zero), missing}, std::move(along)));
  return b.EmitOne(TensorOp::kPad, {value, pads, kNoValue, b.EmitInts(zero)});
}

}  // namespace

// Inputs: states, then scan inputs.
Result<ValueList> ScanNode(NodeContext& node) {
  ScanForm form;
  ASSIGN_OR_RETURN(form.scans, ScanCount(node, node.inputs.size()));
  RETURN_IF_ERROR(node.Require(node.inputs.size()));
  ASSIGN_OR_RETURN(form.axes, PerScan(node, "scan_input_axes", form.scans));
  ASSIGN_OR_RETURN(form.directions, PerScan(node, "scan_input_directions", form.scans));
  return EmitScan(node, node.inputs, std::move(form));
}

// Operator set 8: sequence lengths (optional), then states and scan inputs with a batch in front. The batch is a Scan
// of its own around the one over the sequence; outputs behind a sequence's end are zero.
Result<ValueList> BatchedScanNode(NodeContext& node) {
  ProgramBuilder& b = node.b;
  if (node.inputs.empty()) return Fail(ErrorCode::kMalformed, "the node has no inputs");
  const bool has_lengths = node.Has(0);
  ScanForm form{.first_axes = true};
  ASSIGN_OR_RETURN(form.scans, ScanCount(node, node.inputs.size() - 1));
  form.axes.assign(form.scans, 0);
  ASSIGN_OR_RETURN(form.directions, PerScan(node, "directions", form.scans));
  const ValueList batched(node.inputs.begin() + (has_lengths ? 0 : 1), node.inputs.end());
  std::optional<Dim> batch;
  std::vector<TensorDesc> slices;
  for (ValueId input : batched) {
    if (input == kNoValue) return Fail(ErrorCode::kMalformed, "a state or scan input is missing");
    TensorDesc slice = b.Desc(input);
    if (slice.dims) {
      if (slice.dims->empty()) return Fail(ErrorCode::kShapeMismatch, "an input of Scan has no batch dim");
      if (!batch || !batch->is_const()) batch = slice.dims->front();
      slice.dims->erase(slice.dims->begin());
    }
    slices.push_back(std::move(slice));
  }
  if (!batch) batch = b.symbols().FreshSymbol();
  const size_t outer_symbols = b.symbols().symbol_count();
  const RegionId region = b.OpenRegion();
  ValueList inner;
  for (TensorDesc& slice : slices) inner.push_back(b.AddRegionInput("", std::move(slice)));
  ValueId whole = inner.back();  // a scan input before it is cut to its length
  if (has_lengths) {
    const int64_t zero[] = {0};
    ASSIGN_OR_RETURN(const ValueId length, b.EmitOne(TensorOp::kUnsqueeze, {inner[0], b.EmitInts(zero)}));
    inner.erase(inner.begin());
    for (size_t i = inner.size() - form.scans; i < inner.size(); ++i) {
      ASSIGN_OR_RETURN(inner[i], b.EmitOne(TensorOp::kSlice, {inner[i], b.EmitInts(zero), length, b.EmitInts(zero)}));
    }
  }
  const size_t state_count = inner.size() - form.scans;
  ASSIGN_OR_RETURN(ValueList outputs, EmitScan(node, std::move(inner), form));
  for (size_t i = state_count; has_lengths && i < outputs.size(); ++i) {
    ASSIGN_OR_RETURN(outputs[i], FillUpLike(b, outputs[i], whole));
  }
  ASSIGN_OR_RETURN(outputs, b.CloseRegion(std::move(outputs)));
  std::vector<TensorDesc> descs;
  for (ValueId output : outputs) {
    TensorDesc desc = SeenFromOutside(b.symbols(), b.Desc(output), outer_symbols);
    if (desc.dims) desc.dims->insert(desc.dims->begin(), *batch);
    if (desc.dims && desc.rank() > limits::kRankMax) {
      return Fail(ErrorCode::kLimitExceeded, "an output of Scan has rank " + std::to_string(desc.rank()));
    }
    descs.push_back(std::move(desc));
  }
  const ScanForm over_batch{.scans = batched.size(),
                            .axes = std::vector<int64_t>(batched.size(), 0),
                            .directions = std::vector<int64_t>(batched.size(), 0)};
  Attributes attributes;
  SetScanAttributes(attributes, over_batch, std::vector<int64_t>(outputs.size(), 0),
                    std::vector<int64_t>(outputs.size(), 0));
  return b.EmitControl(TensorOp::kScan, batched, std::move(attributes), {region}, std::move(descs));
}

}  // namespace kiln::onnx
