#include "compile-service/lower/bind_shapes.h"

#include <algorithm>

#include "common/ops/infer.h"
#include "compile-service/passes/pad_axes.h"

namespace kiln::lower {
namespace {

using ir::Graph;
using ir::GraphValueId;
using ir::Origin;

bool HoldsShapes(DType dtype) {
  return dtype == DType::kI64 || dtype == DType::kI32;
}

// Contents of a small integer tensor as constants.
std::optional<KnownValues> ContentsOf(const Tensor& tensor) {
  if (!HoldsShapes(tensor.dtype()) || tensor.ref.elements() > limits::kShapeContentsMax) return std::nullopt;
  KnownValues values;
  if (tensor.dtype() == DType::kI64) {
    for (int64_t v : tensor.values<int64_t>()) values.push_back(Dim::Const(v));
  } else {
    for (int32_t v : tensor.values<int32_t>()) values.push_back(Dim::Const(v));
  }
  return values;
}

// One walk over the body under fixed choices.
class Binder {
 public:
  Binder(const LowerRequest& request, const std::vector<SymbolChoice>& choices)
      : segment_(request.segment), hints_(request.hints), choices_(choices), weights_(request.weights) {}

  Status Run() {
    RETURN_IF_ERROR(AddSymbols());
    AddInputs();
    const Region& region = segment_.body.entry().regions.front();
    for (size_t n = 0; n < region.nodes.size(); ++n) {
      if (Status status = AddNode(region.nodes[n], static_cast<int32_t>(n)); !status) {
        return FailIn("node " + std::to_string(n) + " (" + std::string(OpInfo(region.nodes[n].op).name) + ")",
                      status.error());
      }
    }
    for (ValueId output : region.outputs) graph_.outputs.push_back(ids_[static_cast<size_t>(output)]);
    if (graph_.symbols.symbol_count() != segment_.symbols.size()) {
      return Fail(ErrorCode::kUnsupported, "a shape of the segment is not an expression of its symbols");
    }
    return {};
  }

  Graph& graph() { return graph_; }
  std::vector<Constraint>& assumed() { return assumed_; }
  const std::vector<SymbolGuard>& guards() const { return guards_; }

 private:
  Status AddSymbols() {
    const SymbolTable& declared = segment_.body.symbols;
    mapping_.resize(segment_.symbols.size());
    for (size_t s = 0; s < segment_.symbols.size(); ++s) {
      const Symbol& symbol = declared.symbol(static_cast<SymbolId>(s));
      const SymbolChoice& choice = choices_[s];
      SymbolGuard guard{symbol.range.min, symbol.range.max, symbol.divisor};
      switch (choice.kind) {
        case SymbolChoice::Kind::kFree:
          break;
        case SymbolChoice::Kind::kRange:
          guard.min = std::max(guard.min, choice.min);
          guard.max = std::min(guard.max, choice.max);
          if (choice.divisor > 1 && choice.divisor % guard.divisor == 0) guard.divisor = choice.divisor;
          break;
        case SymbolChoice::Kind::kExact:
          guard = {choice.min, choice.min, 1};
          break;
      }
      if (guard.min > guard.max) {
        return Fail(ErrorCode::kInvalidArgument, "the range chosen for symbol " + std::to_string(s) + " is empty");
      }
      const bool value_dim = segment_.symbols[s].kind == SymbolSource::Kind::kValueDim;
      const Dim dim = graph_.symbols.FreshSymbol({guard.min, guard.max}, guard.divisor);
      const bool exact = choice.kind == SymbolChoice::Kind::kExact && !value_dim;
      mapping_[s] = exact ? Dim::Const(guard.min) : dim;
      guards_.push_back(value_dim ? SymbolGuard{} : guard);
    }
    for (const Constraint& constraint : declared.constraints()) {
      if (UsesValueDim(constraint.left) || UsesValueDim(constraint.right)) {
        open_constraints_.push_back(constraint);
        continue;
      }
      graph_.symbols.AddConstraint({constraint.kind, Translate(constraint.left), Translate(constraint.right)});
    }
    return {};
  }

  bool UsesValueDim(Dim dim) const {
    for (SymbolId id : segment_.body.symbols.SymbolsOf(dim)) {
      if (segment_.symbols[static_cast<size_t>(id)].kind == SymbolSource::Kind::kValueDim) return true;
    }
    return false;
  }

  Dim Translate(Dim dim) { return graph_.symbols.Translate(dim, segment_.body.symbols, mapping_); }

  void AddInputs() {
    const Function& function = segment_.body.entry();
    ids_.assign(function.values.size(), -1);
    graph_.constants = segment_.body.constants;
    const std::vector<ValueId>& inputs = function.regions.front().inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorDesc& desc = function.values[static_cast<size_t>(inputs[i])].desc;
      std::vector<Dim> dims;
      for (Dim dim : *desc.dims) dims.push_back(Translate(dim));
      const GraphValueId id = graph_.AddValue(desc.dtype, std::move(dims));
      ids_[static_cast<size_t>(inputs[i])] = id;
      const bool weight = static_cast<int>(i) >= segment_.runtime_inputs;
      graph_.value(id).origin = weight ? Origin::kWeight : Origin::kInput;
      graph_.value(id).index =
          static_cast<int32_t>(weight ? static_cast<int>(i) - segment_.runtime_inputs : static_cast<int>(i));
      graph_.value(id).prepack = weight && weights_ == WeightForm::kPacked;
      (weight ? graph_.weights : graph_.inputs).push_back(id);
    }
  }

  Status AddNode(const Node& node, int32_t number) {
    if (node.op == TensorOp::kConstant) {
      const ConstantId constant = node.attributes.Constant("value");
      const Tensor& tensor = segment_.body.constants[static_cast<size_t>(constant)].tensor;
      const GraphValueId id = graph_.AddImmediate(tensor);
      graph_.value(id).known = ContentsOf(tensor);
      ids_[static_cast<size_t>(node.outputs[0])] = id;
      return {};
    }
    ir::GraphNode bound{node.op, node.attributes, {}, {}, {number}};
    for (const Attribute& attribute : node.attributes.all()) {
      if (const auto* dims = std::get_if<std::vector<Dim>>(&attribute.value)) {
        std::vector<Dim> translated;
        for (Dim dim : *dims) translated.push_back(Translate(dim));
        bound.attributes.Set(attribute.name, std::move(translated));
      }
    }
    std::vector<TensorDesc> descs(node.inputs.size());
    std::vector<const TensorDesc*> inputs(node.inputs.size(), nullptr);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const GraphValueId id = node.inputs[i] < 0 ? -1 : ids_[static_cast<size_t>(node.inputs[i])];
      bound.inputs.push_back(id);
      if (id < 0) continue;
      descs[i].dtype = graph_.value(id).dtype;
      descs[i].dims = graph_.value(id).dims;
      inputs[i] = &descs[i];
    }
    InferContext context{graph_.symbols, node.op, bound.attributes, graph_.constants, inputs};
    context.policy = UnprovenPolicy::kAssume;
    context.hints = hints_;
    context.outputs.resize(node.outputs.size());
    context.known = [&](int i) -> std::optional<KnownValues> {
      const GraphValueId id = i < static_cast<int>(bound.inputs.size()) ? bound.inputs[static_cast<size_t>(i)] : -1;
      return id < 0 ? std::nullopt : graph_.value(id).known;
    };
    context.known_floats = [&](int i) -> std::optional<std::vector<double>> {
      const GraphValueId id = i < static_cast<int>(bound.inputs.size()) ? bound.inputs[static_cast<size_t>(i)] : -1;
      return id < 0 ? std::nullopt : FloatsOf(id);
    };
    RETURN_IF_ERROR(InferShapes(context));
    for (const Constraint& constraint : context.assumed) Assume(constraint);
    RequireSizes(node.op, context.outputs);
    if (node.op == TensorOp::kPad) RequirePadSources(bound);
    if (node.op == TensorOp::kResize) RequireShown(bound, context.outputs[0]);
    if (node.op == TensorOp::kMaxPool && node.outputs.size() > 1)
      for (size_t d = 2; d < graph_.value(bound.inputs[0]).dims.size(); ++d)
        RequireOne(graph_.value(bound.inputs[0]).dims[d]);
    if (node.op == TensorOp::kGatherElements || node.op == TensorOp::kScatterElements) RequireIndexedDims(bound);
    return Define(node, std::move(bound), context);
  }

  void Assume(const Constraint& constraint) {
    graph_.symbols.AddConstraint(constraint);
    if (std::find(assumed_.begin(), assumed_.end(), constraint) == assumed_.end()) assumed_.push_back(constraint);
  }

  // Calls whose sizes the op rejects are the interpreter's to refuse: a plan is not valid for them.
  void RequireSizes(TensorOp op, const std::vector<TensorDesc>& outputs) {
    const OpFamily family = OpInfo(op).family;
    const bool windows = family == OpFamily::kConvolution || family == OpFamily::kPooling;
    for (const TensorDesc& output : outputs) {
      for (size_t i = 0; output.has_rank() && i < output.dims->size(); ++i) {
        const int64_t least = windows && i >= 2 ? 1 : 0;
        const Dim dim = (*output.dims)[i];
        if (graph_.symbols.Bounds(dim).min < least) Assume({ConstraintKind::kLessEqual, Dim::Const(least), dim});
      }
    }
  }

  // What Pad repeats from its input must be there. Where it repeats the input more than once, one element is enough;
  // the hints tell which of the two a plan is for.
  void RequirePadSources(const ir::GraphNode& node) {
    passes::PadSource source{};
    for (const passes::PadAxis& axis : passes::PadAxes(graph_, node, &source)) {
      const Result<int64_t> size = graph_.symbols.Evaluate(axis.dim, hints_);
      const bool repeats = source == passes::PadSource::kWrap && size && *size < axis.least;
      const int64_t least = repeats ? 1 : axis.least;
      if (!axis.dim.is_const() && graph_.symbols.Bounds(axis.dim).min < least)
        Assume({ConstraintKind::kLessEqual, Dim::Const(least), axis.dim});
    }
  }

  // What Resize shows must be there, where its size does not follow from what is.
  void RequireShown(const ir::GraphNode& node, const TensorDesc& output) {
    const std::vector<Dim>& in = graph_.value(node.inputs[0]).dims;
    if (!output.has_rank() || node.inputs.size() < 4 || node.inputs[3] < 0) return;
    for (size_t d = 0; d < in.size(); ++d)
      if (!graph_.symbols.ProvenEqual(in[d], (*output.dims)[d])) RequireOne(in[d]);
  }

  // Kernels that read at least one element along the dim, whatever they find.
  void RequireOne(Dim dim) {
    const Result<int64_t> size = graph_.symbols.Evaluate(dim, hints_);
    if (graph_.symbols.Bounds(dim).min < 1 && size && *size >= 1)
      Assume({ConstraintKind::kLessEqual, Dim::Const(1), dim});
  }

  // Indices reach no further than the data along the axes that they do not name.
  void RequireIndexedDims(const ir::GraphNode& node) {
    const std::vector<Dim>& data = graph_.value(node.inputs[0]).dims;
    const std::vector<Dim>& indices = graph_.value(node.inputs[1]).dims;
    const int axis = ir::NormalAxis(node.attributes.Int("axis", 0), static_cast<int>(data.size()));
    for (size_t d = 0; d < std::min(data.size(), indices.size()); ++d) {
      if (static_cast<int>(d) == axis || ir::IsAtMost(graph_.symbols, indices[d], data[d])) continue;
      const Result<int64_t> index = graph_.symbols.Evaluate(indices[d], hints_);
      const Result<int64_t> size = graph_.symbols.Evaluate(data[d], hints_);
      if (index && size && *index <= *size) Assume({ConstraintKind::kLessEqual, indices[d], data[d]});
    }
  }

  // Contents of a small f32 immediate.
  std::optional<std::vector<double>> FloatsOf(GraphValueId id) const {
    const ir::GraphValue& value = graph_.value(id);
    if (value.origin != Origin::kImmediate || value.dtype != DType::kF32) return std::nullopt;
    const std::span<float> numbers = graph_.immediates[static_cast<size_t>(value.index)].values<float>();
    return std::vector<double>(numbers.begin(), numbers.end());
  }

  Status Define(const Node& node, ir::GraphNode bound, InferContext& context) {
    bool prepack = true;
    for (GraphValueId input : bound.inputs) prepack = prepack && (input < 0 || graph_.value(input).prepack);
    for (const Attribute& attribute : bound.attributes.all()) {
      if (const auto* dims = std::get_if<std::vector<Dim>>(&attribute.value)) {
        for (Dim dim : *dims) prepack = prepack && dim.is_const();
      }
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] < 0) {
        bound.outputs.push_back(-1);
        continue;
      }
      const TensorDesc& desc = context.outputs[o];
      if (!desc.has_rank()) return Fail(ErrorCode::kUnsupported, "the rank of an output is not known before it runs");
      const GraphValueId id = graph_.AddValue(desc.dtype, *desc.dims);
      ids_[static_cast<size_t>(node.outputs[o])] = id;
      ir::GraphValue& value = graph_.value(id);
      value.index = static_cast<int32_t>(graph_.nodes.size());
      if (o < context.known_outputs.size()) value.known = context.known_outputs[o];
      value.prepack = prepack;
      for (Dim dim : value.dims) value.prepack = value.prepack && dim.is_const();
      bound.outputs.push_back(id);
      BindValueDims(node.outputs[o], value.dims);
      if (Status status = HoldClaim(node.outputs[o], *desc.dims); !status)
        return FailIn("output " + std::to_string(o), status.error());
    }
    graph_.nodes.push_back(std::move(bound));
    return {};
  }

  // What the segment says of the value's sizes is part of it: a call for which that is false is the interpreter's to
  // refuse.
  Status HoldClaim(ValueId body_value, const std::vector<Dim>& dims) {
    const TensorDesc& claimed = segment_.body.entry().values[static_cast<size_t>(body_value)].desc;
    if (!claimed.has_rank()) return {};
    const auto differ = [&](const std::string& said, const std::string& is) {
      return Fail(ErrorCode::kShapeMismatch, "its size is stated as " + said + " and is " + is);
    };
    if (claimed.dims->size() != dims.size()) return differ(ToString(claimed, segment_.body.symbols), "of another rank");
    for (size_t i = 0; i < dims.size(); ++i) {
      const Dim said = (*claimed.dims)[i];
      if (!IsBound(said)) continue;
      const Dim translated = Translate(said);
      if (graph_.symbols.ProvenEqual(translated, dims[i])) continue;
      const Result<int64_t> left = graph_.symbols.Evaluate(translated, hints_);
      const Result<int64_t> right = graph_.symbols.Evaluate(dims[i], hints_);
      if (!left || !right || *left != *right)
        return differ(graph_.symbols.ToString(translated), graph_.symbols.ToString(dims[i]));
      Assume({ConstraintKind::kEqual, dims[i], translated});
    }
    return {};
  }

  // Whether a dim of the body has its meaning by now.
  bool IsBound(Dim dim) const {
    if (segment_.body.symbols.IsTooLarge(dim)) return false;
    for (SymbolId id : segment_.body.symbols.SymbolsOf(dim)) {
      const bool value_dim = segment_.symbols[static_cast<size_t>(id)].kind == SymbolSource::Kind::kValueDim;
      if (value_dim && mapping_[static_cast<size_t>(id)] == graph_.symbols.SymbolDim(id)) return false;
    }
    return true;
  }

  void BindValueDims(ValueId body_value, const std::vector<Dim>& dims) {
    for (size_t s = 0; s < segment_.symbols.size(); ++s) {
      const SymbolSource& source = segment_.symbols[s];
      if (source.kind == SymbolSource::Kind::kValueDim && source.index == body_value &&
          source.dim < static_cast<int32_t>(dims.size())) {
        mapping_[s] = dims[static_cast<size_t>(source.dim)];
        RequireFacts(segment_.body.symbols.symbol(static_cast<SymbolId>(s)), mapping_[s]);
      }
    }
    RequireConstraints();
  }

  // A size that is shown inside the segment has to be what the symbol may be.
  void RequireFacts(const Symbol& symbol, Dim dim) {
    if (graph_.symbols.IsTooLarge(dim)) return;
    const Interval bounds = graph_.symbols.Bounds(dim);
    if (bounds.min < symbol.range.min) Assume({ConstraintKind::kLessEqual, Dim::Const(symbol.range.min), dim});
    if (bounds.max > symbol.range.max) Assume({ConstraintKind::kLessEqual, dim, Dim::Const(symbol.range.max)});
    if (graph_.symbols.Divisor(dim) % symbol.divisor != 0)
      Assume({ConstraintKind::kDivides, Dim::Const(symbol.divisor), dim});
  }

  // Constraints whose last symbol has got its meaning.
  void RequireConstraints() {
    std::erase_if(open_constraints_, [&](const Constraint& constraint) {
      if (!IsBound(constraint.left) || !IsBound(constraint.right)) return false;
      Assume({constraint.kind, Translate(constraint.left), Translate(constraint.right)});
      return true;
    });
  }

  const Segment& segment_;
  std::span<const int64_t> hints_;
  const std::vector<SymbolChoice>& choices_;
  const WeightForm weights_;
  Graph graph_;
  std::vector<Dim> mapping_;  // body symbol to a Dim of graph_.symbols
  std::vector<SymbolGuard> guards_;
  std::vector<GraphValueId> ids_;             // per value of the body
  std::vector<Constraint> open_constraints_;  // of the body: they mention symbols that are shown inside it
  std::vector<Constraint> assumed_;
};

Status CheckRequest(const LowerRequest& request) {
  const size_t symbols = request.segment.symbols.size();
  if (request.segment.body.symbols.symbol_count() != symbols || request.hints.size() != symbols ||
      (!request.symbols.empty() && request.symbols.size() != symbols)) {
    return Fail(ErrorCode::kInvalidArgument, "the segment has " + std::to_string(symbols) +
                                                 " symbols, the request gives " + std::to_string(request.hints.size()) +
                                                 " hints and " + std::to_string(request.symbols.size()) + " choices");
  }
  const Function& function = request.segment.body.entry();
  for (ValueId input : function.regions.front().inputs) {
    if (!function.values[static_cast<size_t>(input)].desc.has_rank()) {
      return Fail(ErrorCode::kUnsupported, "an input of the segment has no known rank");
    }
  }
  return {};
}

}  // namespace

Result<BoundSegment> BindShapes(const LowerRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request));
  std::vector<SymbolChoice> choices = request.symbols;
  choices.resize(request.segment.symbols.size());
  // A symbol assumed equal to a constant is an exact symbol: bind again, so that the constant reaches every expression.
  while (true) {
    Binder binder(request, choices);
    RETURN_IF_ERROR(binder.Run());
    bool changed = false;
    for (const Constraint& constraint : binder.assumed()) {
      if (constraint.kind != ConstraintKind::kEqual) continue;
      for (auto [a, b] : {std::pair(constraint.left, constraint.right), std::pair(constraint.right, constraint.left)}) {
        if (a.kind() != Dim::Kind::kSymbol || !b.is_const()) continue;
        SymbolChoice& choice = choices[static_cast<size_t>(a.symbol())];
        choice = {SymbolChoice::Kind::kExact, b.value(), b.value(), 1};
        changed = true;
      }
    }
    if (changed) continue;
    BoundSegment bound;
    bound.guard.symbols = binder.guards();
    bound.guard.constraints = binder.assumed();
    bound.guard.inputs.assign(static_cast<size_t>(request.segment.runtime_inputs), InputGuard{});
    bound.graph = std::move(binder.graph());
    return bound;
  }
}

}  // namespace kiln::lower
