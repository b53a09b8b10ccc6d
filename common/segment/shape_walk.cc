#include "common/segment/shape_walk.h"

#include <algorithm>

#include "common/bytecode/emit.h"

namespace kiln {

std::optional<KnownValues> ReadKnownValues(const TensorRef& tensor, int64_t max_elements) {
  if (IsFloat(tensor.dtype) || tensor.elements() > max_elements) return std::nullopt;
  const Tensor copy = tensor.IsContiguous() ? Tensor{} : MakeContiguous(tensor);
  const TensorRef& flat = copy.buffer ? copy.ref : tensor;
  KnownValues values;
  values.reserve(static_cast<size_t>(flat.elements()));
  DispatchDType(flat.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>)
      for (int64_t i = 0; i < flat.elements(); ++i) values.push_back(Dim::Const(static_cast<int64_t>(flat.as<T>()[i])));
  });
  return values;
}

std::optional<std::vector<double>> ReadKnownFloats(const TensorRef& tensor, int64_t max_elements) {
  if (!IsFloat(tensor.dtype) || tensor.elements() > max_elements) return std::nullopt;
  const Tensor copy = tensor.IsContiguous() ? Tensor{} : MakeContiguous(tensor);
  const TensorRef& flat = copy.buffer ? copy.ref : tensor;
  std::vector<double> values;
  DispatchDType(flat.dtype, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>)
      for (int64_t i = 0; i < flat.elements(); ++i)
        values.push_back(static_cast<double>(
            static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(flat.as<T>()[i])));
  });
  return values;
}

ShapeWalk::ShapeWalk(const Program& program, const SymbolDefinitions& definitions, int function)
    : program_(program),
      definitions_(definitions),
      function_index_(function),
      function_(program.functions[static_cast<size_t>(function)]),
      symbols_(program.symbols) {
  known_.resize(function_.values.size());
  proven_.resize(function_.values.size());
  maker_.resize(function_.values.size());
  for (const Region& region : function_.regions)
    for (const Node& node : region.nodes)
      if (IsRematerialised(node.op)) maker_[static_cast<size_t>(node.outputs[0])] = &node;
}

void ShapeWalk::Restart() {
  for (ValueId value : since_restart_) known_[static_cast<size_t>(value)].reset();
  since_restart_.clear();
}

std::optional<KnownValues> ShapeWalk::Known(ValueId value) const {
  if (value == kNoValue) return std::nullopt;
  const Node* maker = maker_[static_cast<size_t>(value)];
  if (!maker) return known_[static_cast<size_t>(value)];
  if (maker->op == TensorOp::kShapeVector) {
    const std::span<const Dim> dims = maker->attributes.Dims("dims");
    return KnownValues(dims.begin(), dims.end());
  }
  const Constant& constant = program_.constants[static_cast<size_t>(maker->attributes.Constant("value"))];
  if (!constant.is_immediate) return std::nullopt;
  return ReadKnownValues(constant.tensor.ref, limits::kShapeContentsMax);
}

std::optional<SegmentEnd> NeverInSegment(const Function& function, const Node& node) {
  const OpEffects effects = OpInfo(node.op).effects;
  if (effects == OpEffects::kControl || !node.regions.empty()) return SegmentEnd::kControlFlow;
  if (effects == OpEffects::kRandom) return SegmentEnd::kRandom;
  if (node.op == TensorOp::kCallFunc) return SegmentEnd::kUserKernel;
  for (const std::vector<ValueId>* list : {&node.inputs, &node.outputs})
    for (ValueId value : *list)
      if (value != kNoValue && !function.values[static_cast<size_t>(value)].desc.has_rank())
        return SegmentEnd::kUnknownRank;
  return std::nullopt;
}

std::optional<SegmentEnd> ShapeWalk::Step(const Node& node) {
  last_is_static_ = false;
  last_refuted_.reset();
  last_required_.clear();
  last_failure_.reset();
  if (IsRematerialised(node.op)) return std::nullopt;
  if (const auto never = NeverInSegment(function_, node)) return never;
  return Infer(node);
}

std::optional<SegmentEnd> ShapeWalk::Infer(const Node& node) {
  std::vector<const TensorDesc*> inputs;
  bool is_static = true;
  for (ValueId value : node.inputs) {
    inputs.push_back(value == kNoValue ? nullptr : &function_.values[static_cast<size_t>(value)].desc);
    if (inputs.back()) is_static &= inputs.back()->is_static();
  }
  InferContext context{.symbols = symbols_,
                       .op = node.op,
                       .attributes = node.attributes,
                       .constants = program_.constants,
                       .inputs = inputs,
                       .known = {},
                       .known_floats = {}};
  context.known = [&](int i) { return Known(node.inputs[static_cast<size_t>(i)]); };
  context.known_floats = [&](int i) -> std::optional<std::vector<double>> {
    const ValueId value = node.inputs[static_cast<size_t>(i)];
    if (value == kNoValue || !maker_[static_cast<size_t>(value)]) return std::nullopt;
    const ConstantId id = maker_[static_cast<size_t>(value)]->attributes.Constant("value");
    if (id < 0 || !program_.constants[static_cast<size_t>(id)].is_immediate) return std::nullopt;
    return ReadKnownFloats(program_.constants[static_cast<size_t>(id)].tensor.ref, limits::kShapeContentsMax);
  };
  context.outputs.resize(node.outputs.size());
  // A dim that mentions a symbol without a value was not checked: nothing follows from it.
  const bool inputs_bound = std::ranges::none_of(
      node.inputs, [&](ValueId value) { return value != kNoValue && definitions_.HasUnbound(function_index_, value); });
  if (asks_required_ && inputs_bound) context.required = &last_required_;
  // A rule that fails here fails again when the node runs, with a message.
  if (Status status = InferShapes(context); !status) {
    if (inputs_bound) last_failure_ = status.error();
    return SegmentEnd::kDataDependentShape;
  }
  shown_.clear();
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] != kNoValue) HoldClaim(node.outputs[i], context.outputs[i], inputs_bound);
  if (context.data_dependent) return SegmentEnd::kDataDependentShape;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs[i];
    if (output == kNoValue) continue;
    if (!context.outputs[i].has_rank()) return SegmentEnd::kUnknownRank;
    const TensorDesc& claimed = function_.values[static_cast<size_t>(output)].desc;
    is_static &= context.outputs[i].dims == claimed.dims && context.outputs[i].dtype == claimed.dtype &&
                 context.outputs[i].is_static();
    if (i < context.known_outputs.size() && context.known_outputs[i] && inputs_bound) {
      known_[static_cast<size_t>(output)] = std::move(context.known_outputs[i]);
      since_restart_.push_back(output);
    }
  }
  last_is_static_ = is_static;
  return std::nullopt;
}

void ShapeWalk::HoldClaim(ValueId value, const TensorDesc& inferred, bool inputs_bound) {
  const TensorDesc& claimed = function_.values[static_cast<size_t>(value)].desc;
  if (!claimed.has_rank() || !inferred.has_rank()) return;
  const auto refute = [&](const std::string& what) {
    const std::string& name = function_.values[static_cast<size_t>(value)].name;
    last_refuted_ = Error{ErrorCode::kShapeMismatch,
                          (name.empty() ? "value " + std::to_string(value) : "value \"" + name.substr(0, 200) + "\"") +
                              " is stated as " + ToString(claimed, symbols_) + "; " + what,
                          {}};
  };
  if (claimed.rank() != inferred.rank()) return refute("the op gives " + ToString(inferred, symbols_));
  const std::vector<bool>& defines =
      definitions_.defines[static_cast<size_t>(function_index_)][static_cast<size_t>(value)];
  bool proven = inputs_bound && !definitions_.HasUnbound(function_index_, value);
  for (size_t i = 0; i < claimed.dims->size(); ++i) {
    const Dim is = (*inferred.dims)[i];
    Dim said = (*claimed.dims)[i];
    if (i < defines.size() && defines[i]) {
      shown_.emplace_back(said, is);
      continue;
    }
    const auto shown = std::ranges::find(shown_, said, &std::pair<Dim, Dim>::first);
    if (shown != shown_.end()) said = shown->second;
    proven = proven && symbols_.ProvenEqual(said, is);
    if (symbols_.ProvenDifferent(said, is))
      return refute("the op gives " + symbols_.ToString(is) + " for dim " + std::to_string(i) + ", never " +
                    symbols_.ToString(said));
  }
  proven_[static_cast<size_t>(value)] = proven;
}

}  // namespace kiln
