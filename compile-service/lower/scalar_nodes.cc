#include "compile-service/lower/scalar_nodes.h"

#include <algorithm>

#include "common/base/check.h"
#include "compile-service/lower/kernel_dtypes.h"
#include "compile-service/lower/scalar_expressions.h"

namespace kiln::lower {
namespace {

using ir::ScalarOp;

// Which dtypes of an op kernels compute, as far as they read and write them at all.
enum class DTypes : uint8_t {
  kF32,        // input 0 in f32
  kNumbers,    // integers and floats that kernels compute with; a result in bytes would have to wrap
  kOwnBytes,   // the same, and bytes: the result is a value of the operands
  kEquality,   // numbers, bytes, bool
  kBool,       // bool
  kAny,        // all: the op moves values
  kConverted,  // all that become the other type without rounding twice, but no bytes
  kDivided,    // f32 and f64 by Div; i32 and i64, unless a divisor is known to be 0, which the op refuses
  kQuantized,  // bytes and f32, with one scale and one zero point for all elements
};

template <ScalarOp op>
int32_t Unary(const NodeScalars& n) {
  return n.Op(op, n.x());
}
template <ScalarOp op>
int32_t Fold(const NodeScalars& n) {
  int32_t result = n.x();
  for (const int32_t operand : n.operands.subspan(1)) result = n.Op(op, result, operand);
  return result;
}
template <ScalarOp op>
int32_t Test(const NodeScalars& n) {
  return n.Bool(op, n.x());
}
template <ScalarOp op>
int32_t Compare(const NodeScalars& n) {
  return n.Bool(op, n.x(), n.y());
}
template <ScalarOp op>
int32_t CompareSwapped(const NodeScalars& n) {
  return n.Bool(op, n.y(), n.x());
}

struct Row {
  TensorOp op;
  DTypes dtypes;
  int32_t (*expression)(const NodeScalars&);
};
constexpr Row kTable[] = {
    {TensorOp::kCeil, DTypes::kF32, Unary<ScalarOp::kCeil>},
    {TensorOp::kFloor, DTypes::kF32, Unary<ScalarOp::kFloor>},
    {TensorOp::kRound, DTypes::kF32, Unary<ScalarOp::kRound>},
    {TensorOp::kSqrt, DTypes::kF32, Unary<ScalarOp::kSqrt>},
    {TensorOp::kReciprocal, DTypes::kF32, expressions::Reciprocal},
    {TensorOp::kExp, DTypes::kF32, Unary<ScalarOp::kExp>},
    {TensorOp::kLog, DTypes::kF32, Unary<ScalarOp::kLog>},
    {TensorOp::kSin, DTypes::kF32, Unary<ScalarOp::kSin>},
    {TensorOp::kCos, DTypes::kF32, Unary<ScalarOp::kCos>},
    {TensorOp::kTanh, DTypes::kF32, Unary<ScalarOp::kTanh>},
    {TensorOp::kErf, DTypes::kF32, Unary<ScalarOp::kErf>},
    {TensorOp::kSigmoid, DTypes::kF32, Unary<ScalarOp::kSigmoid>},
    {TensorOp::kLeakyRelu, DTypes::kF32, expressions::LeakyRelu},
    {TensorOp::kThresholdedRelu, DTypes::kF32, expressions::ThresholdedRelu},
    {TensorOp::kElu, DTypes::kF32, expressions::Elu},
    {TensorOp::kCelu, DTypes::kF32, expressions::Celu},
    {TensorOp::kSelu, DTypes::kF32, expressions::Selu},
    {TensorOp::kGelu, DTypes::kF32, expressions::Gelu},
    {TensorOp::kHardSigmoid, DTypes::kF32, expressions::HardSigmoid},
    {TensorOp::kHardSwish, DTypes::kF32, expressions::HardSwish},
    {TensorOp::kMish, DTypes::kF32, expressions::Mish},
    {TensorOp::kSoftplus, DTypes::kF32, expressions::Softplus},
    {TensorOp::kSoftsign, DTypes::kF32, expressions::Softsign},
    {TensorOp::kShrink, DTypes::kF32, expressions::Shrink},
    {TensorOp::kIsNaN, DTypes::kF32, Test<ScalarOp::kIsNaN>},
    {TensorOp::kIsInf, DTypes::kF32, expressions::IsInf},
    {TensorOp::kPow, DTypes::kF32, expressions::Pow},
    {TensorOp::kPRelu, DTypes::kF32, expressions::PRelu},
    {TensorOp::kMean, DTypes::kF32, expressions::Mean},
    {TensorOp::kDiv, DTypes::kDivided, Fold<ScalarOp::kDiv>},
    {TensorOp::kMod, DTypes::kDivided, expressions::Mod},
    {TensorOp::kAbs, DTypes::kNumbers, Unary<ScalarOp::kAbs>},
    {TensorOp::kNeg, DTypes::kNumbers, Unary<ScalarOp::kNeg>},
    {TensorOp::kSign, DTypes::kNumbers, expressions::Sign},
    {TensorOp::kAdd, DTypes::kNumbers, Fold<ScalarOp::kAdd>},
    {TensorOp::kSum, DTypes::kNumbers, Fold<ScalarOp::kAdd>},
    {TensorOp::kSub, DTypes::kNumbers, Fold<ScalarOp::kSub>},
    {TensorOp::kMul, DTypes::kNumbers, Fold<ScalarOp::kMul>},
    {TensorOp::kRelu, DTypes::kOwnBytes, expressions::Relu},
    {TensorOp::kClip, DTypes::kOwnBytes, expressions::Clip},
    {TensorOp::kMin, DTypes::kOwnBytes, Fold<ScalarOp::kMin>},
    {TensorOp::kMax, DTypes::kOwnBytes, Fold<ScalarOp::kMax>},
    {TensorOp::kEqual, DTypes::kEquality, Compare<ScalarOp::kEqual>},
    {TensorOp::kLess, DTypes::kNumbers, Compare<ScalarOp::kLess>},
    {TensorOp::kLessOrEqual, DTypes::kNumbers, Compare<ScalarOp::kLessEqual>},
    {TensorOp::kGreater, DTypes::kNumbers, CompareSwapped<ScalarOp::kLess>},
    {TensorOp::kGreaterOrEqual, DTypes::kNumbers, CompareSwapped<ScalarOp::kLessEqual>},
    {TensorOp::kAnd, DTypes::kBool, Compare<ScalarOp::kAnd>},
    {TensorOp::kOr, DTypes::kBool, Compare<ScalarOp::kOr>},
    {TensorOp::kXor, DTypes::kBool, expressions::Xor},
    {TensorOp::kNot, DTypes::kBool, Test<ScalarOp::kNot>},
    {TensorOp::kCast, DTypes::kConverted, expressions::Cast},
    {TensorOp::kWhere, DTypes::kAny, expressions::Where},
    {TensorOp::kQuantizeLinear, DTypes::kQuantized, expressions::QuantizeLinear},
    {TensorOp::kDequantizeLinear, DTypes::kQuantized, expressions::DequantizeLinear},
};

const Row* FindRow(TensorOp op) {
  const auto row = std::ranges::find(kTable, op, &Row::op);
  return row == std::end(kTable) ? nullptr : row;
}

// A cast from or to halves that goes through f32 without rounding twice: whole numbers beyond 2^24 would.
bool IsHalfCast(DType from, DType to) {
  const bool wide_integer = from == DType::kI32 || from == DType::kI64;
  return IsHalf(from) || (IsHalf(to) && !(wide_integer && to == DType::kBF16));
}

// One scale and one zero point, between f32 and bytes.
bool IsPlainQuantization(const ir::Graph& graph, const ir::GraphNode& node) {
  const ir::GraphValue& x = graph.value(node.inputs[0]);
  const ir::GraphValue& y = graph.value(node.outputs[0]);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] < 0) continue;
    const ir::GraphValue& parameter = graph.value(node.inputs[i]);
    const bool one = std::ranges::all_of(parameter.dims, [&](Dim dim) { return graph.IsOne(dim); });
    if (!one || parameter.rank() > x.rank()) return false;
  }
  const DType scale = graph.value(node.inputs[1]).dtype;
  if (scale != DType::kF32) return false;
  return node.op == TensorOp::kQuantizeLinear ? x.dtype == DType::kF32 && IsByte(y.dtype)
                                              : IsByte(x.dtype) && y.dtype == DType::kF32;
}

// Whether a 0 is among the divisor's elements, where the plan knows them.
std::optional<bool> DividesByZero(const ir::Graph& graph, const ir::GraphNode& node) {
  const ir::GraphValue& divisor = graph.value(node.inputs[1]);
  if (divisor.origin == ir::Origin::kImmediate) {
    const Tensor& tensor = graph.immediates[static_cast<size_t>(divisor.index)];
    if (divisor.dtype == DType::kI32) return std::ranges::count(tensor.values<int32_t>(), 0) > 0;
    if (divisor.dtype == DType::kI64) return std::ranges::count(tensor.values<int64_t>(), 0) > 0;
    return std::nullopt;
  }
  if (!divisor.known) return std::nullopt;
  const auto not_zero = [&](Dim value) {
    const Interval bounds = graph.symbols.Bounds(value);
    return bounds.min > 0 || bounds.max < 0;
  };
  if (std::ranges::all_of(*divisor.known, not_zero)) return false;
  const bool zero = std::ranges::any_of(*divisor.known, [](Dim v) { return v.is_const() && v.value() == 0; });
  return zero ? std::optional(true) : std::nullopt;
}

bool IsDividedInteger(DType dtype) {
  return dtype == DType::kI32 || dtype == DType::kI64;
}

bool IsDivision(const ir::Graph& graph, const ir::GraphNode& node, DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kF64) return node.op == TensorOp::kDiv;
  return IsDividedInteger(dtype) && DividesByZero(graph, node) != true;
}

}  // namespace

// A 0 among the divisors of integers is an error of the op, which no kernel can report: a known one is left to the op,
// others are looked for by a step before the kernel.
bool NeedsDivisorCheck(const ir::Graph& graph, const ir::GraphNode& node) {
  const Row* row = FindRow(node.op);
  return row != nullptr && row->dtypes == DTypes::kDivided && IsDividedInteger(graph.value(node.inputs[0]).dtype) &&
         !DividesByZero(graph, node);
}

bool IsScalarNode(const ir::Graph& graph, const ir::GraphNode& node) {
  const Row* row = FindRow(node.op);
  if (row == nullptr || node.outputs.size() != 1) return false;
  for (ir::GraphValueId input : node.inputs) {
    if (input >= 0 && !IsKernelDType(graph.value(input).dtype)) return false;
  }
  const DType type = graph.value(node.inputs[0]).dtype, out = graph.value(node.outputs[0]).dtype;
  if (!IsKernelDType(out)) return false;
  switch (row->dtypes) {
    case DTypes::kF32:
      return type == DType::kF32;
    case DTypes::kNumbers:
      return type != DType::kBool && !IsHalf(type) && !IsByte(out);
    case DTypes::kOwnBytes:
      return type != DType::kBool && !IsHalf(type);
    case DTypes::kEquality:
      return !IsHalf(type);
    case DTypes::kBool:
      return type == DType::kBool;
    case DTypes::kAny:
      return true;
    case DTypes::kConverted:
      return !IsByte(out) && ((!IsHalf(type) && !IsHalf(out)) || IsHalfCast(type, out));
    case DTypes::kDivided:
      return IsDivision(graph, node, type);
    case DTypes::kQuantized:
      return IsPlainQuantization(graph, node);
  }
  return false;
}

int32_t AddScalarNode(ScalarBuilder& scalars, const ir::Graph& graph, const ir::GraphNode& node,
                      std::span<const int32_t> operands) {
  const Row* row = FindRow(node.op);
  KILN_CHECK(row != nullptr);
  return row->expression({scalars, graph, node, operands, ComputeType(graph.value(node.inputs[0]).dtype)});
}

}  // namespace kiln::lower
