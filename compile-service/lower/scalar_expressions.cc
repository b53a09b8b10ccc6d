#include "compile-service/lower/scalar_expressions.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "compile-service/lower/kernel_dtypes.h"

namespace kiln::lower {

using ir::ScalarOp;

int32_t NodeScalars::Attribute(const char* name, double fallback) const {
  return Number(static_cast<float>(node.attributes.Float(name, fallback)));
}

namespace expressions {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// As x * P(x) near zero, where e^x - 1 has lost x: the series up to a part of 1e-8.
int32_t ExpMinusOne(const NodeScalars& n, int32_t x) {
  constexpr double kFactorials[] = {40320, 5040, 720, 120, 24, 6, 2, 1};
  int32_t series = n.Number(1 / kFactorials[0]);
  for (size_t i = 1; i < std::size(kFactorials); ++i)
    series = n.Op(ScalarOp::kFma, series, x, n.Number(1 / kFactorials[i]));
  const int32_t is_near = n.Less(n.Op(ScalarOp::kAbs, x), n.Number(0.5));
  const int32_t far = n.Op(ScalarOp::kSub, n.Op(ScalarOp::kExp, x), n.Number(1));
  return n.Select(is_near, n.Op(ScalarOp::kMul, x, series), far);
}

// log(1 + t) for t in [0, 1] as 2 atanh(s) with s = t / (2 + t) up to 1/3: 1 + t would lose t.
int32_t LogOfOneAnd(const NodeScalars& n, int32_t t) {
  const int32_t s = n.Op(ScalarOp::kDiv, t, n.Op(ScalarOp::kAdd, t, n.Number(2)));
  const int32_t square = n.Op(ScalarOp::kMul, s, s), twice = n.Op(ScalarOp::kAdd, s, s);
  int32_t series = n.Number(1.0 / 15);
  for (double odd = 13; odd >= 3; odd -= 2) series = n.Op(ScalarOp::kFma, series, square, n.Number(1 / odd));
  return n.Op(ScalarOp::kFma, n.Op(ScalarOp::kMul, series, square), twice, twice);
}

// slope * x + shift, within [0, 1].
int32_t Ramp(const NodeScalars& n, int32_t slope, double shift) {
  const int32_t line = n.Op(ScalarOp::kAdd, n.Op(ScalarOp::kMul, n.x(), slope), n.Number(shift));
  const int32_t most = n.Op(ScalarOp::kMin, line, n.Number(1));
  if (shift != 0) return n.Op(ScalarOp::kMax, most, n.Number(0));
  return n.Op(ScalarOp::kMax, n.Number(0), most);  // of two zeros the first is taken
}

}  // namespace

int32_t Reciprocal(const NodeScalars& n) {
  return n.Op(ScalarOp::kDiv, n.Number(1), n.x());
}

int32_t LeakyRelu(const NodeScalars& n) {
  return n.Select(n.Less(n.x(), n.Number(0)), n.Op(ScalarOp::kMul, n.x(), n.Attribute("alpha", 0.01)), n.x());
}

int32_t ThresholdedRelu(const NodeScalars& n) {
  return n.Select(n.Less(n.Attribute("alpha", 1.0), n.x()), n.x(), n.Number(0));
}

int32_t Elu(const NodeScalars& n) {
  const int32_t x = n.x();
  return n.Select(n.Less(x, n.Number(0)), n.Op(ScalarOp::kMul, n.Attribute("alpha", 1.0), ExpMinusOne(n, x)), x);
}

int32_t Celu(const NodeScalars& n) {
  const int32_t alpha = n.Attribute("alpha", 1.0);
  const int32_t low = n.Op(ScalarOp::kMul, alpha, ExpMinusOne(n, n.Op(ScalarOp::kDiv, n.x(), alpha)));
  return n.Op(ScalarOp::kAdd, n.Op(ScalarOp::kMax, n.Number(0), n.x()), n.Op(ScalarOp::kMin, n.Number(0), low));
}

int32_t Selu(const NodeScalars& n) {
  const int32_t low = n.Op(ScalarOp::kMul, n.Attribute("alpha", 1.67326319217681884765625), ExpMinusOne(n, n.x()));
  return n.Op(ScalarOp::kMul, n.Attribute("gamma", 1.05070102214813232421875),
              n.Select(n.Less(n.Number(0), n.x()), n.x(), low));
}

int32_t Gelu(const NodeScalars& n) {
  const int32_t x = n.x();
  const int32_t half = n.Op(ScalarOp::kMul, x, n.Number(0.5));
  int32_t inner = n.Op(ScalarOp::kErf, n.Op(ScalarOp::kMul, x, n.Number(std::numbers::sqrt2 / 2)));
  if (n.node.attributes.Text("approximate", "none") == "tanh") {
    const int32_t cube = n.Op(ScalarOp::kMul, n.Op(ScalarOp::kMul, x, x), x);
    const int32_t sum = n.Op(ScalarOp::kAdd, x, n.Op(ScalarOp::kMul, cube, n.Number(0.044715)));
    inner = n.Op(ScalarOp::kTanh, n.Op(ScalarOp::kMul, sum, n.Number(std::sqrt(2 / std::numbers::pi))));
  }
  return n.Op(ScalarOp::kMul, half, n.Op(ScalarOp::kAdd, inner, n.Number(1)));
}

int32_t HardSigmoid(const NodeScalars& n) {
  return Ramp(n, n.Attribute("alpha", 0.2), static_cast<float>(n.node.attributes.Float("beta", 0.5)));
}

int32_t HardSwish(const NodeScalars& n) {
  return n.Op(ScalarOp::kMul, n.x(), Ramp(n, n.Number(1.0f / 6), 0.5));
}

int32_t Mish(const NodeScalars& n) {
  return n.Op(ScalarOp::kMul, n.x(), n.Op(ScalarOp::kTanh, Softplus(n)));
}

// max(x, 0) + log(1 + e^-|x|).
int32_t Softplus(const NodeScalars& n) {
  const int32_t tail = n.Op(ScalarOp::kExp, n.Op(ScalarOp::kNeg, n.Op(ScalarOp::kAbs, n.x())));
  return n.Op(ScalarOp::kAdd, n.Op(ScalarOp::kMax, n.x(), n.Number(0)), LogOfOneAnd(n, tail));
}

int32_t Softsign(const NodeScalars& n) {
  return n.Op(ScalarOp::kDiv, n.x(), n.Op(ScalarOp::kAdd, n.Number(1), n.Op(ScalarOp::kAbs, n.x())));
}

// x < -lambd ? x + bias : x > lambd ? x - bias : 0; a NaN stays.
int32_t Shrink(const NodeScalars& n) {
  const int32_t x = n.x(), bias = n.Attribute("bias", 0.0), limit = n.Attribute("lambd", 0.5);
  const int32_t rest = n.Select(n.Bool(ScalarOp::kIsNaN, x), x, n.Number(0));
  const int32_t high = n.Select(n.Less(limit, x), n.Op(ScalarOp::kSub, x, bias), rest);
  return n.Select(n.Less(x, n.Op(ScalarOp::kNeg, limit)), n.Op(ScalarOp::kAdd, x, bias), high);
}

int32_t IsInf(const NodeScalars& n) {
  const bool negative = n.node.attributes.Int("detect_negative", 1) != 0,
             positive = n.node.attributes.Int("detect_positive", 1) != 0;
  const auto equals = [&](double v) { return n.Bool(ScalarOp::kEqual, n.x(), n.Number(v)); };
  if (negative && positive) return n.Bool(ScalarOp::kOr, equals(kInfinity), equals(-kInfinity));
  if (!negative && !positive) return n.scalars.Number(DType::kBool, 0);
  return equals(positive ? kInfinity : -kInfinity);
}

int32_t Pow(const NodeScalars& n) {
  const int32_t x = n.x();
  const std::optional<float> exponent = n.graph.ScalarOf(n.node.inputs[1]);
  if (exponent == 1.0f) return x;
  if (exponent == 2.0f) return n.Op(ScalarOp::kMul, x, x);
  if (exponent == 3.0f) return n.Op(ScalarOp::kMul, n.Op(ScalarOp::kMul, x, x), x);
  if (exponent == 0.5f) {  // a power has no negative zero, and is infinite for both infinities
    const int32_t root = n.Op(ScalarOp::kSqrt, n.Op(ScalarOp::kAdd, x, n.Number(0)));
    const int32_t lowest = n.Bool(ScalarOp::kEqual, x, n.Number(-kInfinity));
    return n.Select(lowest, n.Number(kInfinity), root);
  }
  if (exponent == -1.0f) return Reciprocal(n);
  return n.Op(ScalarOp::kPow, x, n.scalars.As(n.type, n.y()));
}

int32_t PRelu(const NodeScalars& n) {
  const int32_t negative = n.Less(n.x(), n.Number(0));
  return n.Select(negative, n.Op(ScalarOp::kMul, n.x(), n.y()), n.x());
}

int32_t Mean(const NodeScalars& n) {
  int32_t sum = n.x();
  for (const int32_t operand : n.operands.subspan(1)) sum = n.Op(ScalarOp::kAdd, sum, operand);
  return n.Op(ScalarOp::kDiv, sum, n.Number(static_cast<double>(n.operands.size())));
}

int32_t Relu(const NodeScalars& n) {
  return n.Op(ScalarOp::kMax, n.x(), n.Number(0));
}

int32_t Sign(const NodeScalars& n) {  // a NaN stays, zeros are positive
  const int32_t x = n.x(), zero = n.Number(0);
  int32_t low = zero;
  if (IsFloat(n.type)) low = n.Select(n.Bool(ScalarOp::kIsNaN, x), x, zero);
  low = n.Select(n.Less(x, zero), n.Number(-1), low);
  return n.Select(n.Less(zero, x), n.Number(1), low);
}

int32_t Clip(const NodeScalars& n) {
  // A bound that is a NaN bounds nothing.
  const auto bounded = [&](int32_t value, size_t input, bool low) {
    if (!n.Has(input)) return value;
    const int32_t bound = n.operands[input];
    const std::optional<float> known = n.graph.ScalarOf(n.node.inputs[input]);
    if (!IsFloat(n.type) || (known && !std::isnan(*known)))
      return n.Op(low ? ScalarOp::kMax : ScalarOp::kMin, value, bound);
    return n.Select(low ? n.Less(value, bound) : n.Less(bound, value), bound, value);
  };
  return bounded(bounded(n.x(), 1, true), 2, false);
}

// Quotients truncate. The remainder has the sign of the dividend, or of the divisor where `fmod` is not set.
int32_t Mod(const NodeScalars& n) {
  const int32_t y = n.y(), quotient = n.Op(ScalarOp::kDiv, n.x(), y);
  const int32_t rest = n.Op(ScalarOp::kSub, n.x(), n.Op(ScalarOp::kMul, quotient, y));
  if (n.node.attributes.Int("fmod", 0) != 0) return rest;
  const int32_t zero = n.Number(0);
  const int32_t below = n.Bool(ScalarOp::kAnd, n.Less(rest, zero), n.Less(zero, y));
  const int32_t above = n.Bool(ScalarOp::kAnd, n.Less(zero, rest), n.Less(y, zero));
  return n.Select(n.Bool(ScalarOp::kOr, below, above), n.Op(ScalarOp::kAdd, rest, y), rest);
}

int32_t Xor(const NodeScalars& n) {
  return n.Bool(ScalarOp::kAnd, n.Bool(ScalarOp::kOr, n.x(), n.y()),
                n.Bool(ScalarOp::kNot, n.Bool(ScalarOp::kAnd, n.x(), n.y())));
}

int32_t Cast(const NodeScalars& n) {
  const DType storage = n.graph.value(n.node.outputs[0]).dtype;
  const int32_t converted = n.scalars.As(ComputeType(storage), n.x());
  if (!IsHalf(storage)) return converted;
  return n.scalars.Op(storage == DType::kF16 ? ScalarOp::kRoundF16 : ScalarOp::kRoundBF16, DType::kF32, converted);
}

int32_t Where(const NodeScalars& n) {
  const DType out = ComputeType(n.graph.value(n.node.outputs[0]).dtype);
  return n.scalars.Op(ScalarOp::kSelect, out, n.x(), n.y(), n.operands[2]);
}

// Quantisation is exact wherever the op is: differences of bytes are whole f32 numbers, and what is beyond 2^24
// saturates anyway.
int32_t QuantizeLinear(const NodeScalars& n) {
  const int32_t zero = n.Has(2) ? n.operands[2] : n.scalars.Number(DType::kI32, 0);
  const int32_t shift = n.Op(ScalarOp::kConvert, zero);
  const int32_t rounded = n.Op(ScalarOp::kRound, n.Op(ScalarOp::kDiv, n.x(), n.y()));
  const int32_t sum = n.Op(ScalarOp::kAdd, rounded, shift);
  const int32_t number = n.Select(n.Bool(ScalarOp::kIsNaN, rounded), shift, sum);
  return n.scalars.Saturated(number, n.graph.value(n.node.outputs[0]).dtype);
}

int32_t DequantizeLinear(const NodeScalars& n) {
  const int32_t zero = n.Has(2) ? n.operands[2] : n.Number(0);
  const int32_t centered = n.Op(ScalarOp::kSub, n.x(), zero);
  return n.scalars.Op(ScalarOp::kMul, DType::kF32, n.scalars.As(DType::kF32, centered), n.y());
}

}  // namespace expressions
}  // namespace kiln::lower
