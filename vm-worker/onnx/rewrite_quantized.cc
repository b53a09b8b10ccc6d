// Quantised operators; those of com.microsoft become: dequantise, the float operator, quantise again.
#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {
namespace {

// Input triple (tensor, scale, zero point) at `first` as floats.
Result<ValueId> Dequantized(NodeContext& node, size_t first) {
  return node.b.EmitOne(TensorOp::kDequantizeLinear, {node.In(first), node.In(first + 1), node.In(first + 2)});
}

// Scale and zero point at `first`.
Result<ValueList> Quantized(NodeContext& node, ValueId value, size_t first) {
  return node.b.Emit(TensorOp::kQuantizeLinear, {value, node.In(first), node.In(first + 1)});
}

std::vector<int64_t> ChannelsFirst(int rank) {
  std::vector<int64_t> perm = {0, rank - 1};
  for (int64_t i = 1; i < rank - 1; ++i) perm.push_back(i);
  return perm;
}

std::vector<int64_t> ChannelsLast(int rank) {
  std::vector<int64_t> perm = {0};
  for (int64_t i = 2; i < rank; ++i) perm.push_back(i);
  perm.push_back(1);
  return perm;
}

}  // namespace

// QuantizeLinear and DequantizeLinear. Some writers pair a scale per channel with one zero point for all.
Result<ValueList> LinearScaleNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  ASSIGN_OR_RETURN(Attributes attributes, node.Translated());
  ValueList inputs = node.inputs;
  if (node.Has(2) && node.RankOf(node.In(2)) == 0 && node.RankOf(node.In(1)) > 0) {
    ASSIGN_OR_RETURN(const ValueId shape, ShapeOf(node.b, node.In(1)));
    ASSIGN_OR_RETURN(inputs[2], node.b.EmitOne(TensorOp::kExpand, {node.In(2), shape}));
  }
  return node.b.Emit(node.rule.op, std::move(inputs), std::move(attributes));
}

// a, a_scale, a_zero, b, b_scale, b_zero, c_scale, c_zero
Result<ValueList> QLinearBinary(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  ASSIGN_OR_RETURN(const ValueId left, Dequantized(node, 0));
  ASSIGN_OR_RETURN(const ValueId right, Dequantized(node, 3));
  ASSIGN_OR_RETURN(const ValueId result, node.b.EmitOne(node.rule.op, {left, right}));
  return Quantized(node, result, 6);
}

// x, x_scale, x_zero, y_scale, y_zero
Result<ValueList> QLinearUnary(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  ASSIGN_OR_RETURN(const ValueId x, Dequantized(node, 0));
  ASSIGN_OR_RETURN(Attributes attributes, node.Translated());
  if (node.rule.op == TensorOp::kLeakyRelu && !attributes.Has("alpha")) attributes.Set("alpha", 0.01);
  ASSIGN_OR_RETURN(const ValueId result, node.b.EmitOne(node.rule.op, {x}, std::move(attributes)));
  return Quantized(node, result, 3);
}

Result<ValueList> QLinearPool(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  ASSIGN_OR_RETURN(ValueId x, Dequantized(node, 0));
  ASSIGN_OR_RETURN(const Attributes all, node.Translated());
  Attributes attributes;
  for (const Attribute& attribute : all.all()) {
    if (attribute.name != "channels_last") attributes.Set(attribute.name, attribute.value);
  }
  const bool channels_last = all.Int("channels_last", 0) != 0;
  const int rank = node.RankOf(x);
  if (channels_last) {
    if (rank < 3) return Fail(ErrorCode::kUnsupported, "channels_last needs a known rank of at least 3");
    ASSIGN_OR_RETURN(x, TransposeBy(node.b, x, ChannelsFirst(rank)));
  }
  ASSIGN_OR_RETURN(ValueId result, node.b.EmitOne(node.rule.op, {x}, std::move(attributes)));
  if (channels_last) {
    ASSIGN_OR_RETURN(result, TransposeBy(node.b, result, ChannelsLast(rank)));
  }
  return Quantized(node, result, 3);
}

// The attribute `opset` says which Softmax is meant.
Result<ValueList> QLinearSoftmaxNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  ASSIGN_OR_RETURN(const ValueId x, Dequantized(node, 0));
  NodeContext inner{
      node.b, node.importer, node.scope, node.rule, node.attributes, node.attributes.Int("opset", 13), {x}, 1};
  ValueList result;
  if (inner.opset < 13) {
    ASSIGN_OR_RETURN(result, FlatSoftmax(inner));
  } else {
    Attributes along;
    along.Set("axis", node.attributes.Int("axis", -1));
    ASSIGN_OR_RETURN(result, node.b.Emit(TensorOp::kSoftmax, {x}, std::move(along)));
  }
  return Quantized(node, result[0], 3);
}

// y_scale, y_zero, then triples.
Result<ValueList> QLinearConcatNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  ValueList parts;
  for (size_t i = 2; i + 1 < node.inputs.size(); i += 3) {
    ASSIGN_OR_RETURN(const ValueId part, Dequantized(node, i));
    parts.push_back(part);
  }
  if (parts.empty()) return Fail(ErrorCode::kMalformed, "QLinearConcat has nothing to join");
  Attributes along;
  along.Set("axis", node.attributes.Int("axis", 0));
  ASSIGN_OR_RETURN(const ValueId joined, node.b.EmitOne(TensorOp::kConcat, std::move(parts), std::move(along)));
  return Quantized(node, joined, 0);
}

}  // namespace kiln::onnx
