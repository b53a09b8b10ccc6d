// Operators that draw random numbers, in terms of numbers drawn in a given shape.
#include "vm-worker/onnx/chain.h"
#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {
namespace {

// The node's distribution and seed, for elements of `dtype`.
Attributes DrawAttributes(const NodeContext& node, DType dtype) {
  Attributes attributes;
  for (const char* name : {"high", "low", "mean", "scale", "seed"})
    if (node.attributes.Has(name)) attributes.Set(name, node.attributes.Float(name, 0));
  attributes.Set("dtype", static_cast<int64_t>(dtype));
  return attributes;
}

}  // namespace

Result<ValueList> RandomNode(NodeContext& node) {
  if (!node.attributes.Has("shape")) return Fail(ErrorCode::kMalformed, "the node needs the attribute shape");
  const std::vector<int64_t> shape = node.attributes.Ints("shape").value_or(std::vector<int64_t>{});
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(node, "dtype", DType::kF32));
  return node.b.Emit(node.rule.op, {node.b.EmitInts(shape)}, DrawAttributes(node, dtype));
}

Result<ValueList> RandomLikeNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(node, "dtype", node.DTypeOf(node.In(0))));
  ASSIGN_OR_RETURN(const ValueId shape, ShapeOf(node.b, node.In(0)));
  return node.b.Emit(node.rule.op, {shape}, DrawAttributes(node, dtype));
}

// 1 where a number drawn from [0, 1) is below the probability: never for 0, always for 1. Numbers of 24 bits or more
// are compared, whatever the type of the probabilities.
Result<ValueList> BernoulliNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  const DType given = node.DTypeOf(node.In(0));
  if (!IsFloat(given)) {
    return Fail(ErrorCode::kShapeMismatch, "the probabilities of Bernoulli are " + std::string(DTypeName(given)) +
                                               "; they must be floating-point numbers");
  }
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(node, "dtype", given));
  const DType drawn = given == DType::kF64 ? DType::kF64 : DType::kF32;
  Chain c(node.b);
  const ValueId numbers = c.Do(TensorOp::kRandomUniform, {c.Shape(node.In(0))}, DrawAttributes(node, drawn));
  return c.Done({c.Cast(c.Do(TensorOp::kLess, {numbers, c.Cast(node.In(0), drawn)}), dtype)});
}

Result<ValueList> MultinomialNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(node, "dtype", DType::kI32));
  Attributes attributes = DrawAttributes(node, dtype);
  attributes.Set("sample_size", node.attributes.Int("sample_size", 1));
  return node.b.Emit(TensorOp::kMultinomial, {node.In(0)}, std::move(attributes));
}

}  // namespace kiln::onnx
