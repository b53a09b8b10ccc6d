#include "compile-service/lower/reduction.h"

#include <limits>

#include "compile-service/lower/kernel_dtypes.h"

namespace kiln::lower {

using ir::Combine;
using ir::ScalarOp;

namespace {

std::optional<Combine> CombineOf(TensorOp op) {
  if (op == TensorOp::kReduceSum || op == TensorOp::kReduceMean) return Combine::kSum;
  if (op == TensorOp::kReduceMax) return Combine::kMax;
  if (op == TensorOp::kReduceMin) return Combine::kMin;
  if (op == TensorOp::kReduceProd) return Combine::kProduct;
  return std::nullopt;
}

// What the low eight bits of an i32 are as a byte.
int32_t Wrapped(ScalarBuilder& s, DType byte, int32_t value) {
  constexpr DType kT = DType::kI32;
  const int32_t size = s.Number(kT, 256);
  const int32_t whole = s.Op(ScalarOp::kMul, kT, s.Op(ScalarOp::kDiv, kT, value, size), size);
  const int32_t rest = s.Op(ScalarOp::kSub, kT, value, whole);  // of the sign of the value
  const double least = byte == DType::kU8 ? 0 : -128, most = byte == DType::kU8 ? 255 : 127;
  const int32_t below = s.Op(ScalarOp::kLess, DType::kBool, rest, s.Number(kT, least));
  const int32_t above = s.Op(ScalarOp::kLess, DType::kBool, s.Number(kT, most), rest);
  const int32_t lowered = s.Op(ScalarOp::kSelect, kT, above, s.Op(ScalarOp::kSub, kT, rest, size), rest);
  return s.Op(ScalarOp::kSelect, kT, below, s.Op(ScalarOp::kAdd, kT, rest, size), lowered);
}

// An extreme of nothing is the dtype's own least or largest value, not that of the accumulator.
int32_t Bounded(ScalarBuilder& s, const Reduction& reduction, DType dtype, int32_t value) {
  const bool largest = reduction.combine == Combine::kMax;
  double edge = 0;
  DispatchDType(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>)
      edge = static_cast<double>(largest ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max());
  });
  return s.Op(largest ? ScalarOp::kMax : ScalarOp::kMin, reduction.type, value, s.Number(reduction.type, edge));
}

}  // namespace

std::optional<Reduction> ReductionOf(TensorOp op, DType dtype) {
  const std::optional<Combine> combine = CombineOf(op);
  if (!combine) return std::nullopt;
  if (dtype == DType::kF32 || dtype == DType::kF64) return Reduction{*combine, dtype};
  if (IsFloat(dtype)) return std::nullopt;
  const bool extreme = *combine == Combine::kMax || *combine == Combine::kMin;
  if (dtype == DType::kBool) return extreme ? std::optional(Reduction{*combine, DType::kI32}) : std::nullopt;
  if (dtype == DType::kU64 && (extreme || op == TensorOp::kReduceMean)) return std::nullopt;  // read as i64
  // A mean is the quotient of a sum that wraps at 2^64 only.
  return Reduction{*combine, op == TensorOp::kReduceMean ? DType::kI64 : *WideType(dtype)};
}

int32_t AddReduced(ScalarBuilder& scalars, const Reduction& reduction, DType dtype, int32_t result) {
  const bool extreme = reduction.combine == Combine::kMax || reduction.combine == Combine::kMin;
  if (extreme && DTypeBytes(dtype) < DTypeBytes(reduction.type)) result = Bounded(scalars, reduction, dtype, result);
  result = scalars.As(*WideType(dtype), result);
  return !extreme && IsByte(dtype) ? Wrapped(scalars, dtype, result) : result;
}

}  // namespace kiln::lower
