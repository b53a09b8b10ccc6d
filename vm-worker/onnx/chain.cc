#include "vm-worker/onnx/chain.h"

namespace kiln::onnx {

ValueId Chain::Do(TensorOp op, ValueList inputs, Attributes attributes) {
  if (error_) return kNoValue;
  auto value = b_.EmitOne(op, std::move(inputs), std::move(attributes));
  if (value.has_value()) return *value;
  error_ = value.error();
  return kNoValue;
}

ValueId Chain::Do(TensorOp op, ValueList inputs, std::string_view attribute, AttributeValue value) {
  Attributes attributes;
  attributes.Set(attribute, std::move(value));
  return Do(op, std::move(inputs), std::move(attributes));
}

ValueId Chain::Cast(ValueId value, DType dtype) {
  if (value == kNoValue || TypeOf(value) == dtype) return value;
  return Do(TensorOp::kCast, {value}, "to", static_cast<int64_t>(dtype));
}

ValueId Chain::Slice(ValueId value, int64_t axis, int64_t start, int64_t end, int64_t step) {
  return Do(TensorOp::kSlice, {value, Ints({start}), Ints({end}), Ints({axis}), Ints({step})});
}

ValueId Chain::Reduce(TensorOp op, ValueId value, std::vector<int64_t> axes, bool keepdims) {
  ValueList inputs = {value};
  if (!axes.empty()) inputs.push_back(Ints(std::move(axes)));
  return Do(op, std::move(inputs), "keepdims", int64_t{keepdims});
}

}  // namespace kiln::onnx
