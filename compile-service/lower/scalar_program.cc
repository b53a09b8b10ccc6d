#include "compile-service/lower/scalar_program.h"

#include <algorithm>
#include <cmath>

namespace kiln::lower {

using ir::ScalarNode;
using ir::ScalarOp;

int32_t ScalarBuilder::Add(ScalarNode node) {
  // Zeros of both signs are equal numbers and two constants.
  const auto found = std::ranges::find_if(program_, [&](const ScalarNode& other) {
    return other == node && std::signbit(other.number) == std::signbit(node.number);
  });
  if (found != program_.end()) return static_cast<int32_t>(found - program_.begin());
  program_.push_back(node);
  return static_cast<int32_t>(program_.size() - 1);
}

int32_t ScalarBuilder::Load(DType type, int32_t access) {
  return Add({ScalarOp::kLoad, type, -1, -1, -1, access});
}

int32_t ScalarBuilder::Integer(int64_t value) {
  return Add({ScalarOp::kConstant, DType::kI64, -1, -1, -1, 0, 0, value});
}

int32_t ScalarBuilder::Integer(ir::SpecInt value) {
  if (!value.is_argument) return Integer(value.value);
  return Add({ScalarOp::kArgument, DType::kI64, -1, -1, -1, static_cast<int32_t>(value.value)});
}

int32_t ScalarBuilder::As(DType type, int32_t value) {
  if (TypeOf(value) == type) return value;
  return Op(ScalarOp::kConvert, type, value);
}

int32_t ScalarBuilder::FromFront(int32_t index, int32_t size) {
  const int32_t negative = Op(ScalarOp::kLess, DType::kBool, index, Integer(0));
  return Op(ScalarOp::kSelect, DType::kI64, negative, Op(ScalarOp::kAdd, DType::kI64, index, size), index);
}

int32_t ScalarBuilder::Number(DType type, double value) {
  ScalarNode node{ScalarOp::kConstant, type};
  if (IsFloat(type)) {
    node.number = value;
  } else {
    node.integer = static_cast<int64_t>(value);
  }
  return Add(node);
}

int32_t ScalarBuilder::Saturated(int32_t number, DType byte) {
  const DType type = TypeOf(number);
  const bool is_signed = byte == DType::kI8;
  const int32_t high = Op(ScalarOp::kMin, type, number, Number(type, is_signed ? 127 : 255));
  const int32_t both = Op(ScalarOp::kMax, type, high, Number(type, is_signed ? -128 : 0));
  return Op(ScalarOp::kConvert, DType::kI32, both);
}

}  // namespace kiln::lower
