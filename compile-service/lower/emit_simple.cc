// Groups of one node: copies, shape vectors, reference steps.
#include "compile-service/lower/emit.h"
#include "compile-service/lower/resample.h"

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;

namespace {

constexpr Dim kZero = Dim::Const(0);

// Each piece stored into its part of the result, unless its producer did.
Status EmitConcat(PlanBuilder& b, const GraphNode& node) {
  const GraphValue value = b.graph().value(node.outputs[0]);
  const size_t axis = static_cast<size_t>(ir::NormalAxis(node.attributes.Int("axis", 0), value.rank()));
  ASSIGN_OR_RETURN(const Place first, b.PlaceOf(node.inputs[0]));
  const Place whole =
      b.AllocateWhole(node.outputs[0], b.MemoryOrder(b.graph().value(node.inputs[0]).dims, first.strides));
  const StepText text{"concat", node.sources};
  Place part = whole;
  for (GraphValueId input : node.inputs) {
    const GraphValue piece = b.graph().value(input);
    ASSIGN_OR_RETURN(const Place from, b.PlaceOf(input));
    if (!b.IsSame(from, part, piece.dims)) RETURN_IF_ERROR(b.AddCopy(from, part, value.dtype, piece.dims, text));
    part.offset = b.symbols().Add(part.offset, b.symbols().Mul(piece.dims[axis], whole.strides[axis]));
  }
  return {};
}

// The whole filled with the padding value, then the input stored into its part.
Status EmitPad(PlanBuilder& b, const GraphNode& node) {
  const GraphValue value = b.graph().value(node.outputs[0]);
  const GraphValue input = b.graph().value(node.inputs[0]);
  ASSIGN_OR_RETURN(const Place from, b.PlaceOf(node.inputs[0]));
  const Place whole = b.Allocate(node.outputs[0], b.MemoryOrder(input.dims, from.strides));
  GraphValueId fill = node.inputs.size() > 2 ? node.inputs[2] : -1;
  Place fill_place;
  if (fill >= 0) {
    ASSIGN_OR_RETURN(fill_place, b.PlaceOf(fill));
  } else {
    ASSIGN_OR_RETURN(fill_place, b.ZeroOf(value.dtype));
  }
  fill_place.strides.assign(value.dims.size(), kZero);
  RETURN_IF_ERROR(b.AddCopy(fill_place, whole, value.dtype, value.dims, {"pad", node.sources}));
  const KnownValues& pads = *b.graph().value(node.inputs[1]).known;
  Place part = whole;
  for (size_t i = 0; i < input.dims.size(); ++i) {
    part.offset = b.symbols().Add(part.offset, b.symbols().Mul(pads[i], whole.strides[i]));
  }
  return b.AddCopy(from, part, value.dtype, input.dims, {"pad", node.sources});
}

Status EmitBitCast(PlanBuilder& b, const GraphNode& node) {
  const GraphValue from = b.graph().value(node.inputs[0]), to = b.graph().value(node.outputs[0]);
  ASSIGN_OR_RETURN(const Place place, b.PlaceOf(node.inputs[0]));
  const Place out = b.Allocate(node.outputs[0], b.MemoryOrder(from.dims, place.strides));
  return b.AddBitCast(place, from.dtype, out, to.dtype, from.dims, {"bitcast", node.sources});
}

}  // namespace

Status EmitCopies(PlanBuilder& b, const Group& group) {
  const GraphNode node = b.graph().nodes[static_cast<size_t>(group.nodes.front())];
  if (node.op == TensorOp::kBitCast) return EmitBitCast(b, node);
  return node.op == TensorOp::kConcat ? EmitConcat(b, node) : EmitPad(b, node);
}

namespace {

// One store per entry: shape vectors are short.
Status StoreShape(PlanBuilder& b, const Place& place, const std::vector<Dim>& entries,
                  const std::vector<int32_t>& sources) {
  if (entries.empty()) return {};
  KernelArguments arguments;
  ScalarBuilder scalars;
  ir::LoopNestSpec spec;
  spec.inner = ir::SpecInt::Const(1);
  ir::Stage stage{ir::Stage::Kind::kStore, ir::Combine::kSum, 0, ir::Stage::Domain::kFull, {}};
  std::vector<int32_t> pointers;
  for (size_t i = 0; i < entries.size(); ++i) {
    Place entry = place;
    entry.offset = Dim::Const(static_cast<int64_t>(i));
    entry.strides = {Dim::Const(1)};
    pointers.push_back(b.AddPlanValue(entry, DType::kI64, {Dim::Const(1)}));
    spec.accesses.push_back({static_cast<int32_t>(i), DType::kI64, {ir::SpecInt::Const(0)}});
    stage.stores.push_back({static_cast<int32_t>(i), scalars.Integer(arguments.Argument(entries[i]))});
  }
  spec.body = scalars.Take();
  spec.stages.push_back(std::move(stage));
  return b.AddKernel({std::move(spec)}, std::move(pointers), std::move(arguments), Dim::Const(1),
                     Dim::Const(static_cast<int64_t>(entries.size())), {"shape", sources});
}

}  // namespace

Status EmitShape(PlanBuilder& b, const Group& group) {
  const GraphNode node = b.graph().nodes[static_cast<size_t>(group.nodes.front())];
  const std::vector<Dim> entries(node.attributes.Dims("dims").begin(), node.attributes.Dims("dims").end());
  const Place place = b.AllocateDense(node.outputs[0], RowMajor(b.graph().value(node.outputs[0]).rank()));
  return StoreShape(b, place, entries, node.sources);
}

namespace {

// A Resize of one axis (passes/separate_resizes.cc) with the operands that the op takes.
Result<GraphNode> ResizeForm(PlanBuilder& b, const GraphNode& node) {
  GraphNode form{node.op, {}, {node.inputs[0], -1, -1, -1}, node.outputs, node.sources};
  for (const Attribute& attribute : node.attributes.all())
    if (attribute.name != "scale" && attribute.name != "roi") form.attributes.Set(attribute.name, attribute.value);
  const auto floats = [&](const std::vector<float>& values) {
    return b.graph().AddImmediate(Tensor::Of<float>(DType::kF32, Dims{static_cast<int64_t>(values.size())}, values));
  };
  const std::span<const double> roi = node.attributes.Floats("roi");
  if (roi.size() == 2) form.inputs[1] = floats({static_cast<float>(roi[0]), static_cast<float>(roi[1])});
  if (node.attributes.Has("scale")) {
    form.inputs[2] = floats({static_cast<float>(node.attributes.Float("scale", 1))});
    return form;
  }
  const auto axis = static_cast<size_t>(node.attributes.Ints("axes")[0]);
  const std::vector<Dim> size{b.graph().value(node.outputs[0]).dims[axis]}, one{Dim::Const(1)};
  const Place place = b.AllocateBuffer(DType::kI64, one, RowMajor(1));
  RETURN_IF_ERROR(StoreShape(b, place, size, node.sources));
  form.inputs[3] = b.AddMade(DType::kI64, one, place);
  return form;
}

// The node as its reference kernel takes it: reductions made by passes carry their axes in an attribute.
Result<GraphNode> TensorForm(PlanBuilder& b, const GraphNode& node) {
  if (IsResample(node)) return ResizeForm(b, node);
  if (OpInfo(node.op).family != OpFamily::kReduction || !node.attributes.Has("axes")) return node;
  GraphNode form = node;
  const std::span<const int64_t> axes = node.attributes.Ints("axes");
  form.inputs = {node.inputs[0], b.AddIntegers({axes.begin(), axes.end()})};
  form.attributes = {};
  const bool keep = b.graph().value(node.outputs[0]).rank() == b.graph().value(node.inputs[0]).rank();
  form.attributes.Set("keepdims", int64_t{keep ? 1 : 0});
  return form;
}

}  // namespace

Status EmitReference(PlanBuilder& b, const Group& group) {
  const GraphNode bound = b.graph().nodes[static_cast<size_t>(group.nodes.front())];
  ASSIGN_OR_RETURN(const GraphNode node, TensorForm(b, bound));
  const std::string name(OpInfo(node.op).name);
  ReferenceStep step{node.op, node.attributes, {}, {}};
  for (const Attribute& attribute : node.attributes.all()) {
    if (std::holds_alternative<ConstantId>(attribute.value)) {
      return Fail(ErrorCode::kUnsupported, name + " with a constant attribute is not compiled");
    }
  }
  for (GraphValueId input : node.inputs) {
    if (input < 0) {
      step.inputs.push_back(-1);
      continue;
    }
    ASSIGN_OR_RETURN(const Place place, b.RowMajorPlace(input));
    const GraphValue value = b.graph().value(input);
    step.inputs.push_back(b.AddPlanValue(place, value.dtype, value.dims));
  }
  for (GraphValueId output : node.outputs) {
    if (output < 0 && OpInfo(node.op).family == OpFamily::kView) {
      return Fail(ErrorCode::kUnsupported, name + " with an absent output is not compiled");
    }
    if (output < 0) {
      step.outputs.push_back(-1);
      continue;
    }
    const GraphValue value = b.graph().value(output);
    step.outputs.push_back(b.AddPlanValue(b.AllocateDense(output, RowMajor(value.rank())), value.dtype, value.dims));
  }
  b.AddReference(std::move(step), {name, node.sources});
  return {};
}

}  // namespace kiln::lower
