// Loops that carry sequences whose length only running tells. Their states become the tensors that hold the sequences,
// in forms that hold from trip to trip. A sequence that a body only inserts one element into, always at the end or
// always in front, needs no state: the elements are a scan output of the loop, so that a trip costs an element and not
// a copy of all that came before.
#include <algorithm>
#include <functional>

#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/chain.h"
#include "vm-worker/onnx/graph_importer.h"
#include "vm-worker/onnx/loop_state.h"
#include "vm-worker/onnx/run_time_sequence.h"
#include "vm-worker/onnx/sequences.h"

namespace kiln::onnx {
namespace {

// What a body does with a sequence: it inserts one element where all trips do, and nothing else, or something else.
enum class Inserts : uint8_t { kLast, kFirst, kOtherwise };

struct State {
  ValueId initial;  // a tensor or a sequence
  StateShape shape{TensorDesc{}};
  SequenceForm form;
  Inserts inserts = Inserts::kOtherwise;
  bool any_dtype = false;  // a sequence that holds what is inserted first

  bool is_sequence() const { return IsSequence(initial); }
  // Whether the elements leave the loop as a scan output: the body sees an empty sequence.
  bool is_collected() const { return is_sequence() && inserts != Inserts::kOtherwise && !form.has_sizes(); }
};

class SequenceLoop {
 public:
  // Takes the region's inputs, iteration, condition and states, and gives the condition, the states, scan outputs.
  using Body = std::function<Result<ValueList>(const ValueList&)>;

  SequenceLoop(ProgramBuilder& b, Body body) : b_(b), body_(std::move(body)), name_(b.node_name()) {}

  Status AddState(ValueId initial, Inserts inserts, bool any_dtype = false) {
    State state{.initial = initial, .inserts = inserts, .any_dtype = any_dtype};
    if (state.is_sequence()) {
      ASSIGN_OR_RETURN(state.form, FormOf(b_, b_.Sequence(initial)));
    } else {
      state.shape = StateShape(b_.Desc(initial));
    }
    states_.push_back(std::move(state));
    return {};
  }

  // The final states, then the scan outputs.
  Result<ValueList> Emit(ValueId trips, ValueId condition) {
    bool holds = false;
    while (!holds) {
      ProgramBuilder::Snapshot snapshot = b_.Save();
      ASSIGN_OR_RETURN(holds, Import());
      if (holds) break;
      std::vector<KeptForm> kept;
      for (const State& state : states_) kept.emplace_back(b_.symbols(), state.form);
      b_.Restore(std::move(snapshot));
      for (size_t i = 0; i < states_.size(); ++i) {
        ASSIGN_OR_RETURN(states_[i].form, kept[i].Of(b_.symbols()));
      }
    }
    b_.SetNodeName(name_);
    return EmitNode(trips, condition);
  }

 private:
  ValueList AddInputs() {
    ValueList inputs = {b_.AddRegionInput("", StaticDesc(DType::kI64, Dims{})),
                        b_.AddRegionInput("", StaticDesc(DType::kBool, Dims{}))};
    for (const State& state : states_) {
      if (!state.is_sequence()) {
        inputs.push_back(b_.AddRegionInput("", state.shape.Now(b_.symbols())));
        continue;
      }
      ValueList parts;
      if (state.is_collected() || !state.form.seen) {
        inputs.push_back(b_.AddSequence({.elements = {}, .dtype = state.form.dtype}));
        continue;
      }
      for (TensorDesc& desc : PartDescs(b_.symbols(), state.form)) parts.push_back(b_.AddRegionInput("", desc));
      inputs.push_back(FromParts(b_, state.form, parts));
    }
    return inputs;
  }

  Status CheckKinds(const ValueList& outputs) const {
    if (outputs.size() < 1 + states_.size()) {
      return Fail(ErrorCode::kMalformed, "the body has " + std::to_string(outputs.size()) +
                                             " outputs, fewer than its " + std::to_string(states_.size()) +
                                             " states need");
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool is_state = i >= 1 && i <= states_.size();
      if (IsSequence(outputs[i]) == (is_state && states_[i - 1].is_sequence())) continue;
      if (i == 0) return Fail(ErrorCode::kMalformed, "the condition must be a tensor");
      if (!is_state) return Fail(ErrorCode::kUnsupported, "a sequence as scan output is not supported");
      return Fail(ErrorCode::kMalformed, "a state is a sequence on one side of the body and a tensor on the other");
    }
    return {};
  }

  // Brings a state's form up to what the body gives. Returns whether what the body was given still holds.
  Result<bool> Widen(State& state, ValueId output) {
    const ImportedSequence& sequence = b_.Sequence(output);
    const bool was_collected = state.is_collected();
    if (was_collected && (sequence.run_time || sequence.elements.size() != 1)) {
      state.inserts = Inserts::kOtherwise;
      return false;
    }
    ASSIGN_OR_RETURN(const SequenceForm next, FormOf(b_, sequence, outer_symbols_));
    if (state.any_dtype && !state.form.seen) state.form.dtype = next.dtype;
    ASSIGN_OR_RETURN(SequenceForm form, Join(state.form, next));
    if (form == state.form) return true;
    state.form = std::move(form);
    return was_collected && state.is_collected();
  }

  // Imports the body once. Returns whether the states' shapes and forms hold.
  Result<bool> Import() {
    outer_symbols_ = b_.symbols().symbol_count();
    region_ = b_.OpenRegion();
    ASSIGN_OR_RETURN(const ValueList outputs, body_(AddInputs()));
    RETURN_IF_ERROR(CheckKinds(outputs));
    bool holds = true;
    for (size_t i = 0; i < states_.size(); ++i) {
      if (!states_[i].is_sequence()) continue;
      ASSIGN_OR_RETURN(const bool kept, Widen(states_[i], outputs[1 + i]));
      holds = holds && kept;
    }
    if (!holds) return false;
    ValueList made = {outputs[0]};
    for (size_t i = 0; i < states_.size(); ++i) {
      if (states_[i].is_collected()) continue;
      ValueList parts = {outputs[1 + i]};
      if (states_[i].is_sequence()) {
        ASSIGN_OR_RETURN(parts, PartsIn(b_, b_.Sequence(outputs[1 + i]), states_[i].form));
      }
      made.insert(made.end(), parts.begin(), parts.end());
    }
    first_scan_ = made.size();
    made.insert(made.end(), outputs.begin() + 1 + static_cast<std::ptrdiff_t>(states_.size()), outputs.end());
    for (size_t i = 0; i < states_.size(); ++i) {
      if (states_[i].is_collected()) made.push_back(b_.Sequence(outputs[1 + i]).elements[0]);
    }
    ASSIGN_OR_RETURN(made, b_.CloseRegion(std::move(made)));
    made_.clear();
    for (ValueId value : made) made_.push_back(b_.Desc(value));
    for (size_t i = 0, next = 1; i < states_.size(); ++i) {
      State& state = states_[i];
      if (state.is_sequence()) {
        next += PartCount(state);
        continue;
      }
      ASSIGN_OR_RETURN(const bool opened, state.shape.Widen(b_.symbols(), made_[next++], outer_symbols_));
      holds = holds && !opened;
    }
    return holds;
  }

  static size_t PartCount(const State& state) {
    if (!state.is_sequence()) return 1;
    if (state.is_collected() || !state.form.seen) return 0;
    return state.form.flat ? 3 : state.form.is_joined() ? 2 : 1;
  }

  Result<ValueList> EmitNode(ValueId trips, ValueId condition) {
    ValueList inputs = {trips, condition};
    std::vector<TensorDesc> descs;
    SymbolTable& symbols = b_.symbols();
    for (const State& state : states_) {
      if (!state.is_sequence()) {
        inputs.push_back(state.initial);
        descs.push_back(state.shape.Now(symbols));
        continue;
      }
      if (PartCount(state) == 0) continue;
      ASSIGN_OR_RETURN(const ValueList parts, PartsIn(b_, b_.Sequence(state.initial), state.form));
      inputs.insert(inputs.end(), parts.begin(), parts.end());
      for (TensorDesc& desc : PartDescs(symbols, state.form)) descs.push_back(std::move(desc));
    }
    const Dim length = symbols.FreshSymbol();
    for (size_t i = first_scan_; i < made_.size(); ++i) {
      TensorDesc desc = SeenFromOutside(symbols, made_[i], outer_symbols_);
      if (desc.dims) desc.dims->insert(desc.dims->begin(), length);
      if (desc.dims && desc.rank() > limits::kRankMax) {
        return Fail(ErrorCode::kLimitExceeded, "a scan output has rank " + std::to_string(desc.rank()));
      }
      descs.push_back(std::move(desc));
    }
    return Outputs(b_.EmitControl(TensorOp::kLoop, std::move(inputs), {}, {region_}, std::move(descs)));
  }

  Result<ValueList> Outputs(const ValueList& values) {
    ValueList outputs;
    size_t next = 0, collected = 0;
    for (const State& state : states_) collected += state.is_collected();
    size_t next_collected = values.size() - collected;
    for (const State& state : states_) {
      if (state.is_collected()) {
        ASSIGN_OR_RETURN(const ValueId whole, Collected(state, values[next_collected++]));
        outputs.push_back(whole);
      } else if (state.is_sequence()) {
        outputs.push_back(FromParts(b_, state.form, std::span(values).subspan(next, PartCount(state))));
        next += PartCount(state);
      } else {
        outputs.push_back(values[next++]);
      }
    }
    outputs.insert(outputs.end(), values.begin() + static_cast<std::ptrdiff_t>(next),
                   values.end() - static_cast<std::ptrdiff_t>(collected));
    return outputs;
  }

  // What was there before the loop and the elements that its trips gave, in the sequence's order.
  Result<ValueId> Collected(const State& state, ValueId elements) {
    const ImportedSequence& initial = b_.Sequence(state.initial);
    const bool in_front = state.inserts == Inserts::kFirst;
    Chain chain(b_);
    ValueId whole = in_front ? chain.Slice(elements, 0, -1, INT64_MIN, -1) : elements;
    if (initial.run_time || !initial.elements.empty()) {
      ASSIGN_OR_RETURN(const ValueList parts, PartsIn(b_, initial, state.form));
      whole = chain.Concat(in_front ? ValueList{whole, parts[0]} : ValueList{parts[0], whole}, 0);
    }
    ASSIGN_OR_RETURN(const ValueList done, chain.Done({whole}));
    return FromParts(b_, state.form, done);
  }

  ProgramBuilder& b_;
  Body body_;
  std::string name_;
  std::vector<State> states_;
  RegionId region_ = 0;
  size_t outer_symbols_ = 0;
  size_t first_scan_ = 0;         // among the region's outputs
  std::vector<TensorDesc> made_;  // the region's outputs
};

// How often a graph and those inside it read a name, or give it.
size_t Uses(const GraphProto& graph, const std::string& name) {
  size_t uses = 0;
  for (const NodeProto& node : graph.node()) {
    uses += static_cast<size_t>(std::ranges::count(node.input(), name));
    for (const AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) uses += Uses(attribute.g(), name);
    }
  }
  for (const ValueInfoProto& output : graph.output()) uses += output.name() == name;
  return uses;
}

// Whether a name of a Loop's body is a constant zero.
Result<bool> IsZero(NodeContext& node, GraphProto& body, const std::string& name) {
  const auto holds_zero = [&](TensorProto& proto) -> Result<bool> {
    ASSIGN_OR_RETURN(const Tensor tensor, node.importer.ReadOnce(proto));
    const std::optional<KnownValues> known = KnownOfTensor(tensor);
    return known && *known == KnownValues{Dim::Const(0)};
  };
  for (TensorProto& proto : *body.mutable_initializer()) {
    if (proto.name() == name) return holds_zero(proto);
  }
  for (NodeProto& inner : *body.mutable_node()) {
    if (std::ranges::count(inner.output(), name) == 0) continue;
    const bool is_constant = inner.op_type() == "Constant" && inner.attribute_size() == 1 && inner.attribute(0).has_t();
    if (!is_constant) return false;
    return holds_zero(*inner.mutable_attribute(0)->mutable_t());
  }
  if (std::ranges::any_of(body.input(), [&](const ValueInfoProto& input) { return input.name() == name; }))
    return false;
  const ValueId* outside = node.scope.Find(name);
  return outside != nullptr && !IsSequence(*outside) && node.b.KnownInts(*outside) == std::vector<int64_t>{0};
}

// What a Loop's body does with state `i`, a sequence.
Result<Inserts> InsertsOf(NodeContext& node, GraphProto& body, int i) {
  if (i + 2 >= body.input_size() || i + 1 >= body.output_size()) return Inserts::kOtherwise;
  const std::string& before = body.input(i + 2).name();
  const std::string& after = body.output(i + 1).name();
  if (Uses(body, before) != 1 || Uses(body, after) != 1) return Inserts::kOtherwise;
  for (const NodeProto& inner : body.node()) {
    const bool inserts = inner.op_type() == "SequenceInsert" && (inner.domain().empty() || inner.domain() == "ai.onnx");
    if (!inserts || inner.input_size() < 2 || inner.input(0) != before) continue;
    if (inner.output_size() != 1 || inner.output(0) != after) break;
    if (inner.input_size() == 2 || inner.input(2).empty()) return Inserts::kLast;
    ASSIGN_OR_RETURN(const bool in_front, IsZero(node, body, inner.input(2)));
    return in_front ? Inserts::kFirst : Inserts::kOtherwise;
  }
  return Inserts::kOtherwise;
}

}  // namespace

Result<ValueList> LoopOverSequences(NodeContext& node, GraphProto& body) {
  SequenceLoop loop(node.b, [&](const ValueList& inputs) {
    return node.importer.ImportBody(body, node.scope, inputs, BodyRuns::kMaybe);
  });
  for (size_t i = 2; i < node.inputs.size(); ++i) {
    if (!node.Has(i)) return Fail(ErrorCode::kMalformed, "loop state " + std::to_string(i - 2) + " is missing");
    Inserts inserts = Inserts::kOtherwise;
    if (IsSequence(node.In(i))) {
      ASSIGN_OR_RETURN(inserts, InsertsOf(node, body, static_cast<int>(i) - 2));
    }
    RETURN_IF_ERROR(loop.AddState(node.In(i), inserts));
  }
  ASSIGN_OR_RETURN(ValueList outputs, loop.Emit(node.In(0), node.In(1)));
  if (outputs.size() >= static_cast<size_t>(node.outputs)) return outputs;
  return Fail(ErrorCode::kMalformed, "the node has " + std::to_string(node.outputs) + " outputs where its body gives " +
                                         std::to_string(outputs.size()));
}

namespace {

// The sequences that a SequenceMap goes through, and at which positions: 0, 1, … where the length is that of the first.
struct MappedInputs {
  ValueId trips;
  ValueList values, positions;
};

Result<MappedInputs> InputsToMap(NodeContext& node) {
  ProgramBuilder& b = node.b;
  Chain chain(b);
  MappedInputs mapped;
  ValueId first = kNoValue;  // the length of the first sequence, a vector
  for (ValueId input : node.inputs) {
    mapped.values.push_back(input);
    mapped.positions.push_back(kNoValue);
    if (!IsSequence(input)) continue;
    ImportedSequence sequence = b.Sequence(input);
    ValueId length = b.EmitInt(static_cast<int64_t>(sequence.elements.size()));
    if (sequence.run_time) {
      ASSIGN_OR_RETURN(length, RunTimeLength(b, sequence));
    }
    if (first == kNoValue) {
      first = chain.Unsqueeze(length, {0});
      mapped.trips = length;
    }
    // A Reshape fails where another sequence is longer or shorter.
    mapped.positions.back() = chain.ReshapeTo(chain.Count(length), first);
  }
  RETURN_IF_ERROR(chain.Done({}));
  return mapped;
}

}  // namespace

Result<ValueList> MappedAtRunTime(NodeContext& node, GraphProto& body) {
  ProgramBuilder& b = node.b;
  ASSIGN_OR_RETURN(const MappedInputs mapped, InputsToMap(node));
  const auto once = [&](const ValueList& inputs) -> Result<ValueList> {
    ValueList given;
    for (size_t i = 0; i < mapped.values.size(); ++i) {
      given.push_back(mapped.values[i]);
      if (!IsSequence(mapped.values[i])) continue;
      Attributes rows;
      rows.Set("axis", int64_t{0});
      ASSIGN_OR_RETURN(const ValueId at, b.EmitOne(TensorOp::kGather, {mapped.positions[i], inputs[0]}, rows));
      ASSIGN_OR_RETURN(given.back(), RunTimeAt(b, b.Sequence(mapped.values[i]), at));
    }
    ASSIGN_OR_RETURN(const ValueList results, node.importer.ImportBody(body, node.scope, given, BodyRuns::kMaybe));
    if (results.size() < static_cast<size_t>(node.outputs)) {
      return Fail(ErrorCode::kMalformed, "the body has " + std::to_string(results.size()) + " outputs, the node " +
                                             std::to_string(node.outputs));
    }
    ValueList outputs = {inputs[1]};
    for (size_t i = 0; i < static_cast<size_t>(node.outputs); ++i) {
      if (IsSequence(results[i])) return Fail(ErrorCode::kUnsupported, "a sequence of sequences is not supported");
      ImportedSequence sequence = b.Sequence(inputs[2 + i]);
      sequence.dtype = node.DTypeOf(results[i]);
      if (sequence.run_time) {
        ASSIGN_OR_RETURN(const ValueId longer, RunTimeInsert(b, sequence, results[i], kNoValue));
        outputs.push_back(longer);
      } else {
        sequence.elements.push_back(results[i]);
        outputs.push_back(b.AddSequence(std::move(sequence)));
      }
    }
    return outputs;
  };
  SequenceLoop loop(b, once);
  for (int i = 0; i < node.outputs; ++i) RETURN_IF_ERROR(loop.AddState(b.AddSequence({}), Inserts::kLast, true));
  return loop.Emit(mapped.trips, kNoValue);
}

}  // namespace kiln::onnx
