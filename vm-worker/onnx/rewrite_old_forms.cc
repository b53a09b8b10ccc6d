// Forms of the first operator sets: attributes that became inputs or changed their type, name or default, broadcasting
// by an axis, training switches.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "vm-worker/onnx/chain.h"
#include "vm-worker/onnx/rewrite.h"
#include "vm-worker/onnx/tensor_proto.h"

namespace kiln::onnx {
namespace {

Result<Attributes> TranslatedWithout(const NodeContext& node, std::initializer_list<std::string_view> names) {
  ASSIGN_OR_RETURN(const Attributes all, node.Translated());
  Attributes attributes;
  for (const Attribute& attribute : all.all()) {
    if (std::ranges::find(names, attribute.name) == names.end()) attributes.Set(attribute.name, attribute.value);
  }
  return attributes;
}

// What a later operator set has as another default.
struct OldDefault {
  std::string_view name;
  AttributeValue value;
};
Result<ValueList> EmitWithDefaults(NodeContext& node, std::initializer_list<OldDefault> defaults) {
  ASSIGN_OR_RETURN(Attributes attributes, node.Translated());
  for (const OldDefault& fallback : defaults) {
    if (!attributes.Has(fallback.name)) attributes.Set(fallback.name, fallback.value);
  }
  return node.b.Emit(node.rule.op, node.inputs, std::move(attributes), node.outputs);
}

bool HasOneElement(const TensorDesc& desc) {
  return desc.has_rank() && std::ranges::all_of(*desc.dims, [](Dim dim) { return dim == Dim::Const(1); });
}

// Sums of |x|^p and their p-th roots, in f64: powers leave the range of smaller types.
ValueId PowersOf(Chain& c, ValueId x, double p) {
  return c.Do(TensorOp::kPow, {c.Do(TensorOp::kAbs, {c.Cast(x, DType::kF64)}), c.Scalar(p, DType::kF64)});
}
ValueId RootOf(Chain& c, ValueId sums, double p, DType dtype) {
  return c.Cast(c.Do(TensorOp::kPow, {sums, c.Scalar(1 / p, DType::kF64)}), dtype);
}

// The attribute `p` of a norm: an integer, in operator set 1 a float.
Result<double> PowerOf(const NodeContext& node) {
  const double p = node.opset < 2 ? node.attributes.Float("p", 2) : static_cast<double>(node.attributes.Int("p", 2));
  if (!std::isfinite(p) || p <= 0) {
    return Fail(ErrorCode::kMalformed, "p is " + std::to_string(p) + "; it is above 0 and finite");
  }
  return p;
}

}  // namespace

// Below 7: with `broadcast`, the second operand's dims align with the first's from `axis` on, or at the end; one of a
// single element needs no place.
Result<ValueList> LegacyBroadcast(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  ASSIGN_OR_RETURN(Attributes attributes, TranslatedWithout(node, {"axis", "broadcast"}));
  ValueList inputs = node.inputs;
  const bool placed = node.attributes.Int("broadcast", 0) != 0 && node.attributes.Has("axis");
  if (placed && !HasOneElement(node.b.Desc(node.In(1)))) {
    const int rank = node.RankOf(node.In(0));
    const int other = node.RankOf(node.In(1));
    if (rank < 0 || other < 0) return Fail(ErrorCode::kUnsupported, "broadcasting from an axis needs known ranks");
    int64_t axis = node.attributes.Int("axis", 0);
    if (axis < 0) axis += rank;
    const int64_t trailing = rank - axis - other;
    if (axis < 0 || trailing < 0) {
      return Fail(ErrorCode::kShapeMismatch, "axis " + std::to_string(axis) + " cannot align rank " +
                                                 std::to_string(other) + " with rank " + std::to_string(rank));
    }
    std::vector<int64_t> axes;
    for (int64_t i = 0; i < trailing; ++i) axes.push_back(other + i);
    if (!axes.empty()) {
      ASSIGN_OR_RETURN(inputs[1], node.b.EmitOne(TensorOp::kUnsqueeze, {inputs[1], node.b.EmitInts(axes)}));
    }
  }
  return node.b.Emit(node.rule.op, std::move(inputs), std::move(attributes));
}

// Below 7: a slope of rank 1 belongs to the channels, dim 1, or is one for all.
Result<ValueList> LegacyPRelu(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  ValueId slope = node.In(1);
  const int rank = node.RankOf(node.In(0));
  if (!HasOneElement(node.b.Desc(slope))) {
    if (rank < 0 || node.RankOf(slope) < 0) {
      return Fail(ErrorCode::kUnsupported, "a slope per channel needs known ranks");
    }
    if (node.RankOf(slope) == 1 && rank > 2) {
      std::vector<int64_t> axes;
      for (int64_t i = 1; i < rank - 1; ++i) axes.push_back(i);
      ASSIGN_OR_RETURN(slope, node.b.EmitOne(TensorOp::kUnsqueeze, {slope, node.b.EmitInts(axes)}));
    }
  }
  return node.b.Emit(TensorOp::kPRelu, {node.In(0), slope});
}

// Squeeze, Unsqueeze, reductions: `axes` becomes input 1.
Result<ValueList> AttributeToInts(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  ValueList inputs = {node.In(0)};
  if (const auto axes = node.attributes.Ints("axes")) inputs.push_back(node.b.EmitInts(*axes));
  Attributes attributes;
  if (node.attributes.Has("keepdims")) attributes.Set("keepdims", node.attributes.Int("keepdims", 1));
  return node.b.Emit(node.rule.op, std::move(inputs), std::move(attributes));
}

Result<ValueList> SliceFromAttributes(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  const auto starts = node.attributes.Ints("starts");
  const auto ends = node.attributes.Ints("ends");
  if (!starts || !ends) return Fail(ErrorCode::kMalformed, "Slice needs the attributes starts and ends");
  ValueList inputs = {node.In(0), node.b.EmitInts(*starts), node.b.EmitInts(*ends)};
  if (const auto axes = node.attributes.Ints("axes")) inputs.push_back(node.b.EmitInts(*axes));
  return node.b.Emit(TensorOp::kSlice, std::move(inputs));
}

// Operator set 1 has no bounds unless they are given; the next ones have those of f32.
Result<ValueList> ClipFromAttributes(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  const DType dtype = node.DTypeOf(node.In(0));
  const auto bound = [&](std::string_view name, double fallback) {
    const bool given = node.attributes.Has(name);
    if (!given && node.opset < 6) return kNoValue;
    return node.b.EmitScalar(given ? node.attributes.Float(name, 0) : fallback, dtype);
  };
  constexpr double kLargest = std::numeric_limits<float>::max();
  const ValueId low = bound("min", -kLargest);
  const ValueId high = bound("max", kLargest);
  return node.b.Emit(TensorOp::kClip, {node.In(0), low, high});
}

// The amounts are `pads`, in operator set 1 `paddings`.
Result<ValueList> PadFromAttributes(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  const std::string name = node.opset < 2 ? "paddings" : "pads";
  const auto pads = node.attributes.Ints(name);
  if (!pads) return Fail(ErrorCode::kMalformed, "Pad needs the attribute " + name);
  Attributes attributes;
  attributes.Set("mode", node.attributes.Text("mode", "constant"));
  const ValueId amounts = node.b.EmitInts(*pads);
  const ValueId fill = node.b.EmitScalar(node.attributes.Float("value", 0), node.DTypeOf(node.In(0)));
  return node.b.Emit(TensorOp::kPad, {node.In(0), amounts, fill}, std::move(attributes));
}

// An empty shape, which files may also leave out, is a scalar's.
Result<ValueList> ReshapeFromAttribute(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  const std::vector<int64_t> shape = node.attributes.Ints("shape").value_or(std::vector<int64_t>());
  ASSIGN_OR_RETURN(const ValueId reshaped, ReshapeTo(node.b, node.In(0), shape));
  return ValueList{reshaped};
}

// `to` is a name of the format's list of element types; the row has those that are supported.
Result<ValueList> CastToNamed(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  struct Named {
    std::string_view name;
    DType dtype;
  };
  static constexpr Named kNames[] = {{"FLOAT", DType::kF32},    {"DOUBLE", DType::kF64}, {"FLOAT16", DType::kF16},
                                     {"INT8", DType::kI8},      {"INT16", DType::kI16},  {"INT32", DType::kI32},
                                     {"INT64", DType::kI64},    {"UINT8", DType::kU8},   {"UINT16", DType::kU16},
                                     {"UINT32", DType::kU32},   {"UINT64", DType::kU64}, {"BOOL", DType::kBool},
                                     {"BFLOAT16", DType::kBF16}};
  const std::string to = node.attributes.Text("to", "");
  const auto* found = std::ranges::find(kNames, to, &Named::name);
  if (found == std::end(kNames)) return Fail(ErrorCode::kMalformed, "Cast needs the attribute to");
  ASSIGN_OR_RETURN(const ValueId value, CastTo(node.b, node.In(0), found->dtype));
  return ValueList{value};
}

Result<ValueList> ConcatOfOldDefault(NodeContext& node) {
  return EmitWithDefaults(node, {{"axis", int64_t{1}}});
}

Result<ValueList> SeluOfOldDefaults(NodeContext& node) {
  return EmitWithDefaults(node, {{"alpha", 1.6732}, {"gamma", 1.0507}});
}

// Lengths are an attribute or a second input, of the data's type; without either the parts are equal.
Result<ValueList> SplitFromLengths(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  ValueList inputs = {node.In(0)};
  if (const auto split = node.attributes.Ints("split")) {
    inputs.push_back(node.b.EmitInts(*split));
  } else if (node.Has(1)) {
    ASSIGN_OR_RETURN(const ValueId lengths, CastTo(node.b, node.In(1), DType::kI64));
    inputs.push_back(lengths);
  }
  Attributes attributes;
  attributes.Set("axis", node.attributes.Int("axis", 0));
  return node.b.Emit(TensorOp::kSplit, std::move(inputs), std::move(attributes), node.outputs);
}

// Inputs: x, copies, axis, the latter two of one element and the data's type.
Result<ValueList> TileAlongAxis(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(3));
  const int rank = node.RankOf(node.In(0));
  if (rank < 0) return Fail(ErrorCode::kUnsupported, "Tile along an axis needs a known rank");
  Chain c(node.b);
  const auto number = [&](size_t i) { return c.Reshape(c.Cast(node.In(i), DType::kI64), {1}); };
  const ValueId once = c.Ints(std::vector<int64_t>(static_cast<size_t>(rank), 1));
  const ValueId repeats = c.Do(TensorOp::kScatterElements, {once, number(2), number(1)});
  return c.Done({c.Do(TensorOp::kTile, {node.In(0), repeats})});
}

// `output_sequence` says whether a reader needs output Y, which its name says as well. A default was misspelt once.
Result<ValueList> RecurrentOfOldForm(NodeContext& node) {
  ASSIGN_OR_RETURN(Attributes attributes, TranslatedWithout(node, {"output_sequence"}));
  if (attributes.Text("direction", "") == "foward") attributes.Set("direction", std::string("forward"));
  return node.b.Emit(node.rule.op, node.inputs, std::move(attributes), node.outputs);
}

// Windows of operator set 1 lie inside the padded input, so that averages over all their positions are sums.
Result<ValueList> LpPoolOfAnyPower(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  ASSIGN_OR_RETURN(const double p, PowerOf(node));
  const auto kernel = node.attributes.Ints("kernel_shape");
  if (!kernel) return Fail(ErrorCode::kMalformed, "LpPool needs the attribute kernel_shape");
  ASSIGN_OR_RETURN(Attributes attributes, TranslatedWithout(node, {"p"}));
  if (p == std::floor(p) && p <= std::numeric_limits<int32_t>::max()) {
    attributes.Set("p", static_cast<int64_t>(p));
    return node.b.Emit(TensorOp::kLpPool, {node.In(0)}, std::move(attributes));
  }
  double positions = 1;
  for (const int64_t size : *kernel) positions *= static_cast<double>(size);
  attributes.Set("count_include_pad", int64_t{1});
  Chain c(node.b);
  const ValueId means = c.Do(TensorOp::kAveragePool, {PowersOf(c, node.In(0), p)}, std::move(attributes));
  const ValueId sums = c.Mul(means, c.Scalar(positions, DType::kF64));
  return c.Done({RootOf(c, sums, p, node.DTypeOf(node.In(0)))});
}

Result<ValueList> GlobalLpPoolNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  ASSIGN_OR_RETURN(const double p, PowerOf(node));
  const ValueId x = node.In(0);
  const int rank = node.RankOf(x);
  if (rank < 3) return Fail(ErrorCode::kUnsupported, "the input needs a known rank of at least 3");
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < rank; ++i) axes.push_back(i);
  Chain c(node.b);
  if (p == 1 || p == 2) return c.Done({c.Reduce(p == 1 ? TensorOp::kReduceL1 : TensorOp::kReduceL2, x, axes, true)});
  return c.Done({RootOf(c, c.Reduce(TensorOp::kReduceSum, PowersOf(c, x, p), axes, true), p, node.DTypeOf(x))});
}

}  // namespace kiln::onnx
