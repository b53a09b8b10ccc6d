#include "compile-service/lower/scalar_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace kiln::lower {
namespace {

using ir::ScalarNode;
using ir::ScalarOp;

// How an op enters kernels. Activations are f32 functions of one input; Generic ops exist for several dtypes;
// Quantization ops have one scale and one zero point for all elements. A 0 among the divisors of integers is an error
// of the op, which no kernel can report: a known one is left to the op, others are looked for by a step before the
// kernel.
enum class ScalarKind : uint8_t { kNone, kActivation, kFloatOnly, kGeneric, kQuantization, kDivision };

ScalarKind KindOf(TensorOp op) {
  static constexpr struct {
    TensorOp op;
    ScalarKind kind;
  } kTable[] = {
      {TensorOp::kCeil, ScalarKind::kActivation},
      {TensorOp::kFloor, ScalarKind::kActivation},
      {TensorOp::kRound, ScalarKind::kActivation},
      {TensorOp::kSqrt, ScalarKind::kActivation},
      {TensorOp::kReciprocal, ScalarKind::kActivation},
      {TensorOp::kExp, ScalarKind::kActivation},
      {TensorOp::kLog, ScalarKind::kActivation},
      {TensorOp::kSin, ScalarKind::kActivation},
      {TensorOp::kCos, ScalarKind::kActivation},
      {TensorOp::kTanh, ScalarKind::kActivation},
      {TensorOp::kErf, ScalarKind::kActivation},
      {TensorOp::kSigmoid, ScalarKind::kActivation},
      {TensorOp::kLeakyRelu, ScalarKind::kActivation},
      {TensorOp::kThresholdedRelu, ScalarKind::kActivation},
      {TensorOp::kElu, ScalarKind::kActivation},
      {TensorOp::kCelu, ScalarKind::kActivation},
      {TensorOp::kSelu, ScalarKind::kActivation},
      {TensorOp::kGelu, ScalarKind::kActivation},
      {TensorOp::kHardSigmoid, ScalarKind::kActivation},
      {TensorOp::kHardSwish, ScalarKind::kActivation},
      {TensorOp::kMish, ScalarKind::kActivation},
      {TensorOp::kSoftplus, ScalarKind::kActivation},
      {TensorOp::kSoftsign, ScalarKind::kActivation},
      {TensorOp::kShrink, ScalarKind::kActivation},
      {TensorOp::kIsNaN, ScalarKind::kFloatOnly},
      {TensorOp::kIsInf, ScalarKind::kFloatOnly},
      {TensorOp::kDiv, ScalarKind::kDivision},
      {TensorOp::kMod, ScalarKind::kDivision},
      {TensorOp::kPow, ScalarKind::kFloatOnly},
      {TensorOp::kPRelu, ScalarKind::kFloatOnly},
      {TensorOp::kMean, ScalarKind::kFloatOnly},
      {TensorOp::kAbs, ScalarKind::kGeneric},
      {TensorOp::kNeg, ScalarKind::kGeneric},
      {TensorOp::kRelu, ScalarKind::kGeneric},
      {TensorOp::kSign, ScalarKind::kGeneric},
      {TensorOp::kClip, ScalarKind::kGeneric},
      {TensorOp::kAdd, ScalarKind::kGeneric},
      {TensorOp::kSub, ScalarKind::kGeneric},
      {TensorOp::kMul, ScalarKind::kGeneric},
      {TensorOp::kMin, ScalarKind::kGeneric},
      {TensorOp::kMax, ScalarKind::kGeneric},
      {TensorOp::kSum, ScalarKind::kGeneric},
      {TensorOp::kEqual, ScalarKind::kGeneric},
      {TensorOp::kLess, ScalarKind::kGeneric},
      {TensorOp::kLessOrEqual, ScalarKind::kGeneric},
      {TensorOp::kGreater, ScalarKind::kGeneric},
      {TensorOp::kGreaterOrEqual, ScalarKind::kGeneric},
      {TensorOp::kAnd, ScalarKind::kGeneric},
      {TensorOp::kOr, ScalarKind::kGeneric},
      {TensorOp::kXor, ScalarKind::kGeneric},
      {TensorOp::kNot, ScalarKind::kGeneric},
      {TensorOp::kCast, ScalarKind::kGeneric},
      {TensorOp::kWhere, ScalarKind::kGeneric},
      {TensorOp::kQuantizeLinear, ScalarKind::kQuantization},
      {TensorOp::kDequantizeLinear, ScalarKind::kQuantization},
  };
  for (const auto& row : kTable) {
    if (row.op == op) return row.kind;
  }
  return ScalarKind::kNone;
}

bool IsLogical(TensorOp op) {
  return op == TensorOp::kAnd || op == TensorOp::kOr || op == TensorOp::kXor || op == TensorOp::kNot;
}

bool IsHalf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

// A cast from or to halves that goes through f32 without rounding twice: whole numbers beyond 2^24 would.
bool IsHalfCast(DType from, DType to) {
  const bool wide_integer = from == DType::kI32 || from == DType::kI64;
  return IsHalf(from) || (IsHalf(to) && !(wide_integer && to == DType::kBF16));
}

// Ops whose results are a byte's own values, so that computing in i32 needs no wrapping in between.
bool StaysInRange(TensorOp op) {
  return op == TensorOp::kMin || op == TensorOp::kMax || op == TensorOp::kClip || op == TensorOp::kRelu ||
         op == TensorOp::kWhere;
}

// The quantization ops with one scale and one zero point, between f32 and bytes.
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

bool DividesIntegers(const ir::Graph& graph, const ir::GraphNode& node) {
  const DType type = graph.value(node.inputs[0]).dtype;
  return KindOf(node.op) == ScalarKind::kDivision && (type == DType::kI32 || type == DType::kI64);
}

bool IsDivision(const ir::Graph& graph, const ir::GraphNode& node) {
  if (IsFloat(graph.value(node.inputs[0]).dtype)) return node.op == TensorOp::kDiv;
  return DividesIntegers(graph, node) && DividesByZero(graph, node) != true;
}

}  // namespace

bool IsByte(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kI8;
}

bool IsKernelDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kI32 || dtype == DType::kI64 ||
         dtype == DType::kBool || IsByte(dtype) || IsHalf(dtype);
}

DType ComputeType(DType dtype) {
  if (IsHalf(dtype)) return DType::kF32;
  return IsByte(dtype) ? DType::kI32 : dtype;
}

std::optional<DType> WideType(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
      return DType::kF32;
    case DType::kF64:
    case DType::kI64:
    case DType::kBool:
      return dtype;
    case DType::kU8:
    case DType::kI8:
    case DType::kU16:
    case DType::kI16:
    case DType::kI32:
      return DType::kI32;
    case DType::kU32:
    case DType::kU64:
      return DType::kI64;
  }
  return std::nullopt;
}

bool NeedsDivisorCheck(const ir::Graph& graph, const ir::GraphNode& node) {
  return DividesIntegers(graph, node) && !DividesByZero(graph, node);
}

bool IsScalarNode(const ir::Graph& graph, const ir::GraphNode& node) {
  const ScalarKind kind = KindOf(node.op);
  if (kind == ScalarKind::kNone || node.outputs.size() != 1) return false;
  for (ir::GraphValueId input : node.inputs) {
    if (input >= 0 && !IsKernelDType(graph.value(input).dtype)) return false;
  }
  if (!IsKernelDType(graph.value(node.outputs[0]).dtype)) return false;
  if (kind == ScalarKind::kQuantization) return IsPlainQuantization(graph, node);
  const DType type = graph.value(node.inputs[0]).dtype, out = graph.value(node.outputs[0]).dtype;
  if (IsByte(out) && !StaysInRange(node.op)) return false;
  if (IsHalf(type) || IsHalf(out)) {
    if (node.op == TensorOp::kCast) return IsHalfCast(type, out);
    return node.op == TensorOp::kWhere;
  }
  if (kind == ScalarKind::kDivision) return IsDivision(graph, node);
  if (kind != ScalarKind::kGeneric && type != DType::kF32) return false;
  if (node.op == TensorOp::kWhere || node.op == TensorOp::kCast) return true;
  if (IsLogical(node.op)) return type == DType::kBool;
  return type != DType::kBool || node.op == TensorOp::kEqual;
}

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

int32_t ScalarBuilder::Activation(const ir::GraphNode& node, int32_t x) {
  constexpr DType kT = DType::kF32;
  const auto number = [&](double v) { return Number(kT, v); };
  const auto op1 = [&](ScalarOp op, int32_t a) { return Op(op, kT, a); };
  const auto op2 = [&](ScalarOp op, int32_t a, int32_t b) { return Op(op, kT, a, b); };
  const auto attribute = [&](const char* name, double fallback) {
    return number(static_cast<float>(node.attributes.Float(name, fallback)));
  };
  const auto less = [&](int32_t a, int32_t b) { return Op(ScalarOp::kLess, DType::kBool, a, b); };
  const auto select = [&](int32_t c, int32_t a, int32_t b) { return Op(ScalarOp::kSelect, kT, c, a, b); };
  const auto softplus = [&] {  // max(x, 0) + log(1 + e^-|x|)
    const int32_t tail = op1(ScalarOp::kExp, op1(ScalarOp::kNeg, op1(ScalarOp::kAbs, x)));
    return op2(ScalarOp::kAdd, op2(ScalarOp::kMax, x, number(0)), LogOfOneAnd(tail));
  };
  const auto hard = [&](int32_t slope, double shift) {
    const int32_t line = op2(ScalarOp::kAdd, op2(ScalarOp::kMul, x, slope), number(shift));
    const int32_t most = op2(ScalarOp::kMin, line, number(1));
    if (shift != 0) return op2(ScalarOp::kMax, most, number(0));
    return op2(ScalarOp::kMax, number(0), most);  // of two zeros the first is taken
  };
  if (node.op == TensorOp::kCeil) return op1(ScalarOp::kCeil, x);
  if (node.op == TensorOp::kFloor) return op1(ScalarOp::kFloor, x);
  if (node.op == TensorOp::kRound) return op1(ScalarOp::kRound, x);
  if (node.op == TensorOp::kSqrt) return op1(ScalarOp::kSqrt, x);
  if (node.op == TensorOp::kReciprocal) return op2(ScalarOp::kDiv, number(1), x);
  if (node.op == TensorOp::kExp) return op1(ScalarOp::kExp, x);
  if (node.op == TensorOp::kLog) return op1(ScalarOp::kLog, x);
  if (node.op == TensorOp::kSin) return op1(ScalarOp::kSin, x);
  if (node.op == TensorOp::kCos) return op1(ScalarOp::kCos, x);
  if (node.op == TensorOp::kTanh) return op1(ScalarOp::kTanh, x);
  if (node.op == TensorOp::kErf) return op1(ScalarOp::kErf, x);
  if (node.op == TensorOp::kSigmoid) return op1(ScalarOp::kSigmoid, x);
  if (node.op == TensorOp::kLeakyRelu) {
    return select(less(x, number(0)), op2(ScalarOp::kMul, x, attribute("alpha", 0.01)), x);
  }
  if (node.op == TensorOp::kThresholdedRelu) return select(less(attribute("alpha", 1.0), x), x, number(0));
  if (node.op == TensorOp::kElu) {
    return select(less(x, number(0)), op2(ScalarOp::kMul, attribute("alpha", 1.0), ExpMinusOne(x)), x);
  }
  if (node.op == TensorOp::kCelu) {
    const int32_t alpha = attribute("alpha", 1.0);
    const int32_t low = op2(ScalarOp::kMul, alpha, ExpMinusOne(op2(ScalarOp::kDiv, x, alpha)));
    return op2(ScalarOp::kAdd, op2(ScalarOp::kMax, number(0), x), op2(ScalarOp::kMin, number(0), low));
  }
  if (node.op == TensorOp::kSelu) {
    const int32_t low = op2(ScalarOp::kMul, attribute("alpha", 1.67326319217681884765625), ExpMinusOne(x));
    return op2(ScalarOp::kMul, attribute("gamma", 1.05070102214813232421875), select(less(number(0), x), x, low));
  }
  if (node.op == TensorOp::kGelu) {
    const int32_t half = op2(ScalarOp::kMul, x, number(0.5));
    int32_t inner = op1(ScalarOp::kErf, op2(ScalarOp::kMul, x, number(std::numbers::sqrt2 / 2)));
    if (node.attributes.Text("approximate", "none") == "tanh") {
      const int32_t cube = op2(ScalarOp::kMul, op2(ScalarOp::kMul, x, x), x);
      const int32_t sum = op2(ScalarOp::kAdd, x, op2(ScalarOp::kMul, cube, number(0.044715)));
      inner = op1(ScalarOp::kTanh, op2(ScalarOp::kMul, sum, number(std::sqrt(2 / std::numbers::pi))));
    }
    return op2(ScalarOp::kMul, half, op2(ScalarOp::kAdd, inner, number(1)));
  }
  if (node.op == TensorOp::kHardSigmoid)
    return hard(attribute("alpha", 0.2), static_cast<float>(node.attributes.Float("beta", 0.5)));
  if (node.op == TensorOp::kHardSwish) return op2(ScalarOp::kMul, x, hard(number(1.0f / 6), 0.5));
  if (node.op == TensorOp::kMish) return op2(ScalarOp::kMul, x, op1(ScalarOp::kTanh, softplus()));
  if (node.op == TensorOp::kSoftplus) return softplus();
  if (node.op == TensorOp::kSoftsign) {
    return op2(ScalarOp::kDiv, x, op2(ScalarOp::kAdd, number(1), op1(ScalarOp::kAbs, x)));
  }
  // Shrink: x < -lambd ? x + bias : x > lambd ? x - bias : 0; a NaN stays.
  const int32_t bias = attribute("bias", 0.0), limit = attribute("lambd", 0.5);
  const int32_t rest = select(Op(ScalarOp::kIsNaN, DType::kBool, x), x, number(0));
  const int32_t high = select(less(limit, x), op2(ScalarOp::kSub, x, bias), rest);
  return select(less(x, op1(ScalarOp::kNeg, limit)), op2(ScalarOp::kAdd, x, bias), high);
}

// As x * P(x) near zero, where e^x - 1 has lost x: the series up to a part of 1e-8.
int32_t ScalarBuilder::ExpMinusOne(int32_t x) {
  constexpr DType kT = DType::kF32;
  constexpr double kFactorials[] = {40320, 5040, 720, 120, 24, 6, 2, 1};
  int32_t series = Number(kT, 1 / kFactorials[0]);
  for (size_t i = 1; i < std::size(kFactorials); ++i)
    series = Op(ScalarOp::kFma, kT, series, x, Number(kT, 1 / kFactorials[i]));
  const int32_t is_near = Op(ScalarOp::kLess, DType::kBool, Op(ScalarOp::kAbs, kT, x), Number(kT, 0.5));
  const int32_t far = Op(ScalarOp::kSub, kT, Op(ScalarOp::kExp, kT, x), Number(kT, 1));
  return Op(ScalarOp::kSelect, kT, is_near, Op(ScalarOp::kMul, kT, x, series), far);
}

// log(1 + t) for t in [0, 1] as 2 atanh(s) with s = t / (2 + t) up to 1/3: 1 + t would lose t.
int32_t ScalarBuilder::LogOfOneAnd(int32_t t) {
  constexpr DType kT = DType::kF32;
  const int32_t s = Op(ScalarOp::kDiv, kT, t, Op(ScalarOp::kAdd, kT, t, Number(kT, 2)));
  const int32_t square = Op(ScalarOp::kMul, kT, s, s), twice = Op(ScalarOp::kAdd, kT, s, s);
  int32_t series = Number(kT, 1.0 / 15);
  for (double odd = 13; odd >= 3; odd -= 2) series = Op(ScalarOp::kFma, kT, series, square, Number(kT, 1 / odd));
  return Op(ScalarOp::kFma, kT, Op(ScalarOp::kMul, kT, series, square), twice, twice);
}

int32_t ScalarBuilder::Power(const ir::Graph& graph, const ir::GraphNode& node, std::span<const int32_t> operands) {
  constexpr DType kT = DType::kF32;
  const int32_t x = operands[0];
  const std::optional<float> exponent = graph.ScalarOf(node.inputs[1]);
  if (exponent == 1.0f) return x;
  if (exponent == 2.0f) return Op(ScalarOp::kMul, kT, x, x);
  if (exponent == 3.0f) return Op(ScalarOp::kMul, kT, Op(ScalarOp::kMul, kT, x, x), x);
  if (exponent == 0.5f) {  // a power has no negative zero, and is infinite for both infinities
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const int32_t root = Op(ScalarOp::kSqrt, kT, Op(ScalarOp::kAdd, kT, x, Number(kT, 0)));
    const int32_t lowest = Op(ScalarOp::kEqual, DType::kBool, x, Number(kT, -kInfinity));
    return Op(ScalarOp::kSelect, kT, lowest, Number(kT, kInfinity), root);
  }
  if (exponent == -1.0f) return Op(ScalarOp::kDiv, kT, Number(kT, 1), x);
  int32_t power = operands[1];
  if (graph.value(node.inputs[1]).dtype != kT) power = Op(ScalarOp::kConvert, kT, power);
  return Op(ScalarOp::kPow, kT, x, power);
}

int32_t ScalarBuilder::F32(const ir::Graph& graph, const ir::GraphNode& node, std::span<const int32_t> operands) {
  constexpr DType kT = DType::kF32;
  const int32_t x = operands[0];
  if (node.op == TensorOp::kIsNaN) return Op(ScalarOp::kIsNaN, DType::kBool, x);
  if (node.op == TensorOp::kIsInf) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const bool negative = node.attributes.Int("detect_negative", 1) != 0,
               positive = node.attributes.Int("detect_positive", 1) != 0;
    const auto equals = [&](double v) { return Op(ScalarOp::kEqual, DType::kBool, x, Number(kT, v)); };
    if (negative && positive) return Op(ScalarOp::kOr, DType::kBool, equals(kInfinity), equals(-kInfinity));
    if (!negative && !positive) return Number(DType::kBool, 0);
    return equals(positive ? kInfinity : -kInfinity);
  }
  if (node.op == TensorOp::kPow) return Power(graph, node, operands);
  if (node.op == TensorOp::kPRelu) {
    const int32_t negative = Op(ScalarOp::kLess, DType::kBool, x, Number(kT, 0));
    return Op(ScalarOp::kSelect, kT, negative, Op(ScalarOp::kMul, kT, x, operands[1]), x);
  }
  int32_t sum = x;  // Mean
  for (size_t i = 1; i < operands.size(); ++i) sum = Op(ScalarOp::kAdd, kT, sum, operands[i]);
  return Op(ScalarOp::kDiv, kT, sum, Number(kT, static_cast<double>(operands.size())));
}

// Exact wherever the op is: differences of bytes are whole f32 numbers, and what is beyond 2^24 saturates anyway.
int32_t ScalarBuilder::Quantization(const ir::Graph& graph, const ir::GraphNode& node,
                                    std::span<const int32_t> operands) {
  constexpr DType kT = DType::kF32;
  const int32_t zero = operands.size() > 2 && operands[2] >= 0 ? operands[2] : Number(DType::kI32, 0);
  if (node.op == TensorOp::kDequantizeLinear) {
    const int32_t centered = Op(ScalarOp::kSub, DType::kI32, operands[0], zero);
    return Op(ScalarOp::kMul, kT, Op(ScalarOp::kConvert, kT, centered), operands[1]);
  }
  const int32_t shift = Op(ScalarOp::kConvert, kT, zero);
  const int32_t rounded = Op(ScalarOp::kRound, kT, Op(ScalarOp::kDiv, kT, operands[0], operands[1]));
  const int32_t sum = Op(ScalarOp::kAdd, kT, rounded, shift);
  const int32_t number = Op(ScalarOp::kSelect, kT, Op(ScalarOp::kIsNaN, DType::kBool, rounded), shift, sum);
  return Saturated(number, graph.value(node.outputs[0]).dtype);
}

int32_t ScalarBuilder::Saturated(int32_t number, DType byte) {
  const DType type = program_[static_cast<size_t>(number)].type;
  const bool is_signed = byte == DType::kI8;
  const int32_t high = Op(ScalarOp::kMin, type, number, Number(type, is_signed ? 127 : 255));
  const int32_t both = Op(ScalarOp::kMax, type, high, Number(type, is_signed ? -128 : 0));
  return Op(ScalarOp::kConvert, DType::kI32, both);
}

// Quotients of integers truncate. A remainder has the sign of the dividend, or of the divisor where `fmod` is not set.
int32_t ScalarBuilder::Division(const ir::GraphNode& node, DType type, int32_t x, int32_t y) {
  const int32_t quotient = Op(ScalarOp::kDiv, type, x, y);
  if (node.op == TensorOp::kDiv) return quotient;
  const int32_t rest = Op(ScalarOp::kSub, type, x, Op(ScalarOp::kMul, type, quotient, y));
  if (node.attributes.Int("fmod", 0) != 0) return rest;
  const auto boolean = [&](ScalarOp op, int32_t a, int32_t b) { return Op(op, DType::kBool, a, b); };
  const int32_t zero = Number(type, 0);
  const int32_t below =
      boolean(ScalarOp::kAnd, boolean(ScalarOp::kLess, rest, zero), boolean(ScalarOp::kLess, zero, y));
  const int32_t above =
      boolean(ScalarOp::kAnd, boolean(ScalarOp::kLess, zero, rest), boolean(ScalarOp::kLess, y, zero));
  return Op(ScalarOp::kSelect, type, boolean(ScalarOp::kOr, below, above), Op(ScalarOp::kAdd, type, rest, y), rest);
}

int32_t ScalarBuilder::Any(const ir::Graph& graph, const ir::GraphNode& node, DType type,
                           std::span<const int32_t> operands) {
  const int32_t x = operands[0];
  const int32_t y = operands.size() > 1 ? operands[1] : -1;
  const auto fold = [&](ScalarOp op) {
    int32_t result = x;
    for (size_t i = 1; i < operands.size(); ++i) result = Op(op, type, result, operands[i]);
    return result;
  };
  const auto boolean = [&](ScalarOp op, int32_t a, int32_t b) { return Op(op, DType::kBool, a, b); };
  if (node.op == TensorOp::kAbs) return Op(ScalarOp::kAbs, type, x);
  if (node.op == TensorOp::kNeg) return Op(ScalarOp::kNeg, type, x);
  if (node.op == TensorOp::kRelu) return Op(ScalarOp::kMax, type, x, Number(type, 0));
  if (node.op == TensorOp::kSign) {  // a NaN stays, zeros are positive
    const int32_t zero = Number(type, 0);
    int32_t low = zero;
    if (IsFloat(type)) low = Op(ScalarOp::kSelect, type, boolean(ScalarOp::kIsNaN, x, -1), x, zero);
    low = Op(ScalarOp::kSelect, type, boolean(ScalarOp::kLess, x, zero), Number(type, -1), low);
    return Op(ScalarOp::kSelect, type, boolean(ScalarOp::kLess, zero, x), Number(type, 1), low);
  }
  if (node.op == TensorOp::kClip) {
    // A bound that is a NaN bounds nothing.
    const auto bounded = [&](int32_t value, size_t input, bool low) {
      if (input >= operands.size() || operands[input] < 0) return value;
      const int32_t bound = operands[input];
      const std::optional<float> known = graph.ScalarOf(node.inputs[input]);
      if (!IsFloat(type) || (known && !std::isnan(*known)))
        return Op(low ? ScalarOp::kMax : ScalarOp::kMin, type, value, bound);
      const int32_t outside = low ? boolean(ScalarOp::kLess, value, bound) : boolean(ScalarOp::kLess, bound, value);
      return Op(ScalarOp::kSelect, type, outside, bound, value);
    };
    return bounded(bounded(x, 1, true), 2, false);
  }
  if (node.op == TensorOp::kAdd || node.op == TensorOp::kSum) return fold(ScalarOp::kAdd);
  if (node.op == TensorOp::kSub) return fold(ScalarOp::kSub);
  if (node.op == TensorOp::kMul) return fold(ScalarOp::kMul);
  if (node.op == TensorOp::kMin) return fold(ScalarOp::kMin);
  if (node.op == TensorOp::kMax) return fold(ScalarOp::kMax);
  if (node.op == TensorOp::kEqual) return boolean(ScalarOp::kEqual, x, y);
  if (node.op == TensorOp::kLess) return boolean(ScalarOp::kLess, x, y);
  if (node.op == TensorOp::kLessOrEqual) return boolean(ScalarOp::kLessEqual, x, y);
  if (node.op == TensorOp::kGreater) return boolean(ScalarOp::kLess, y, x);
  if (node.op == TensorOp::kGreaterOrEqual) return boolean(ScalarOp::kLessEqual, y, x);
  if (node.op == TensorOp::kAnd) return boolean(ScalarOp::kAnd, x, y);
  if (node.op == TensorOp::kOr) return boolean(ScalarOp::kOr, x, y);
  if (node.op == TensorOp::kNot) return boolean(ScalarOp::kNot, x, -1);
  if (node.op == TensorOp::kXor) {
    return Op(ScalarOp::kAnd, DType::kBool, boolean(ScalarOp::kOr, x, y),
              boolean(ScalarOp::kNot, boolean(ScalarOp::kAnd, x, y), -1));
  }
  const DType out = ComputeType(graph.value(node.outputs[0]).dtype);
  if (node.op == TensorOp::kCast) {
    const int32_t converted = out == type ? x : Op(ScalarOp::kConvert, out, x);
    const DType storage = graph.value(node.outputs[0]).dtype;
    if (!IsHalf(storage)) return converted;
    return Op(storage == DType::kF16 ? ScalarOp::kRoundF16 : ScalarOp::kRoundBF16, DType::kF32, converted);
  }
  return Op(ScalarOp::kSelect, out, x, y, operands[2]);  // Where
}

int32_t ScalarBuilder::Node(const ir::Graph& graph, const ir::GraphNode& node, std::span<const int32_t> operands) {
  switch (KindOf(node.op)) {
    case ScalarKind::kActivation:
      return Activation(node, operands[0]);
    case ScalarKind::kFloatOnly:
      return F32(graph, node, operands);
    case ScalarKind::kQuantization:
      return Quantization(graph, node, operands);
    case ScalarKind::kDivision:
      return Division(node, ComputeType(graph.value(node.inputs[0]).dtype), operands[0], operands[1]);
    case ScalarKind::kGeneric:
    case ScalarKind::kNone:
      break;
  }
  return Any(graph, node, ComputeType(graph.value(node.inputs[0]).dtype), operands);
}

}  // namespace kiln::lower
