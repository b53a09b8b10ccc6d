// Writes decompositions as expressions: the first error sticks, later steps do nothing, and `Done` reports it.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "vm-worker/onnx/program_builder.h"

namespace kiln::onnx {

// Every method returns kNoValue once a step has failed. Not thread-safe.
class Chain {
 public:
  explicit Chain(ProgramBuilder& builder) : b_(builder) {}

  ValueId Do(TensorOp op, ValueList inputs, Attributes attributes = {});
  ValueId Do(TensorOp op, ValueList inputs, std::string_view attribute, AttributeValue value);
  ValueId Add(ValueId a, ValueId b) { return Do(TensorOp::kAdd, {a, b}); }
  ValueId Sub(ValueId a, ValueId b) { return Do(TensorOp::kSub, {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return Do(TensorOp::kMul, {a, b}); }
  ValueId Div(ValueId a, ValueId b) { return Do(TensorOp::kDiv, {a, b}); }
  ValueId Where(ValueId condition, ValueId a, ValueId b) { return Do(TensorOp::kWhere, {condition, a, b}); }
  ValueId Ints(std::vector<int64_t> values) { return b_.EmitInts(values); }
  ValueId Scalar(double value, DType dtype) { return b_.EmitScalar(value, dtype); }
  ValueId Cast(ValueId value, DType dtype);
  ValueId Reshape(ValueId value, std::vector<int64_t> shape) {
    return Do(TensorOp::kReshape, {value, Ints(std::move(shape))});
  }
  // To dims that a vector holds. A 0 is a size; in literal shapes, above, it is the size that the value has there.
  ValueId ReshapeTo(ValueId value, ValueId dims) {
    return Do(TensorOp::kReshape, {value, dims}, "allowzero", int64_t{1});
  }
  ValueId Transpose(ValueId value, std::vector<int64_t> perm) {
    return Do(TensorOp::kTranspose, {value}, "perm", std::move(perm));
  }
  ValueId Unsqueeze(ValueId value, std::vector<int64_t> axes) {
    return Do(TensorOp::kUnsqueeze, {value, Ints(std::move(axes))});
  }
  ValueId Squeeze(ValueId value, std::vector<int64_t> axes) {
    return Do(TensorOp::kSqueeze, {value, Ints(std::move(axes))});
  }
  ValueId Concat(ValueList parts, int64_t axis) { return Do(TensorOp::kConcat, std::move(parts), "axis", axis); }
  // Elements start, start + step… below end of one axis.
  ValueId Slice(ValueId value, int64_t axis, int64_t start, int64_t end, int64_t step = 1);
  ValueId Shape(ValueId value) { return Do(TensorOp::kShape, {value}); }
  // Dim `axis` as a vector of one element, and as a scalar.
  ValueId Dim(ValueId value, int64_t axis) {
    return Do(TensorOp::kGather, {Shape(value), Ints({axis})}, "axis", int64_t{0});
  }
  ValueId ScalarDim(ValueId value, int64_t axis) { return Squeeze(Dim(value, axis), {0}); }
  // 0, 1, … up to a scalar.
  ValueId Count(ValueId limit) { return Do(TensorOp::kRange, {b_.EmitInt(0), limit, b_.EmitInt(1)}); }
  ValueId Reduce(TensorOp op, ValueId value, std::vector<int64_t> axes, bool keepdims);
  DType TypeOf(ValueId value) const { return value == kNoValue ? DType::kF32 : b_.Desc(value).dtype; }

  Result<ValueList> Done(ValueList outputs) {
    if (error_) return std::unexpected(*error_);
    return outputs;
  }

 private:
  ProgramBuilder& b_;
  std::optional<Error> error_;
};

}  // namespace kiln::onnx
