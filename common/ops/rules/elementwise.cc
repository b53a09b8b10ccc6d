// Element-wise ops: broadcast shapes, and contents where shape arithmetic passes through.
#include <algorithm>
#include <functional>

#include "common/ops/rules/rules.h"

namespace kiln::rules {
namespace {

// Row-major contents of input i stretched to the output's dims, all constant.
std::optional<KnownValues> Stretched(InferContext& context, size_t i, const DimList& out) {
  const std::optional<KnownValues> values = Known(context, i);
  if (!values || !Ranked(context, i) || !ConstantProduct(InDims(context, i))) return std::nullopt;
  const DimList& in = InDims(context, i);
  const size_t lead = out.size() - in.size();
  const int64_t count = *ConstantProduct(out);
  KnownValues result(static_cast<size_t>(count));
  for (int64_t flat = 0; flat < count; ++flat) {
    int64_t rest = flat;
    int64_t offset = 0;
    int64_t stride = 1;
    for (size_t d = out.size(); d-- > 0;) {
      const int64_t index = rest % out[d].value();
      rest /= out[d].value();
      if (d < lead) continue;
      const int64_t own = in[d - lead].value();
      offset += (own == 1 ? 0 : index) * stride;
      stride *= own;
    }
    if (offset >= static_cast<int64_t>(values->size())) return std::nullopt;
    result[static_cast<size_t>(flat)] = (*values)[static_cast<size_t>(offset)];
  }
  return result;
}

using Elements = std::span<const Dim>;
using ElementRule = std::function<std::optional<Dim>(SymbolTable&, Elements)>;

// Whether every value the expression may take is exact in a float dtype, and a constant one in an integer dtype. The
// int64 limits are never exact: as a Dim they may stand for an overflow, where the kernel wraps.
bool ExactIn(const InferContext& context, DType dtype, Dim value) {
  if (value == context.symbols.TooLarge()) return false;
  if (!IsFloat(dtype)) {
    if (!value.is_const()) return true;
    if (value.value() == INT64_MAX || value.value() == INT64_MIN) return false;
    const bool is_signed = DTypeClassOf(dtype) == DTypeClass::kSigned;
    const int64_t bits = DTypeBytes(dtype) * 8 - (is_signed ? 1 : 0);
    if (bits >= 63) return is_signed || value.value() >= 0;
    const int64_t limit = int64_t{1} << bits;
    return value.value() < limit && value.value() >= (is_signed ? -limit : 0);
  }
  const int64_t limit = dtype == DType::kF64   ? int64_t{1} << 53
                        : dtype == DType::kF32 ? int64_t{1} << 24
                                               : int64_t{1} << 8;
  const Interval bounds = context.symbols.Bounds(value);
  return bounds.min >= -limit && bounds.max <= limit;
}

// Fills the known output where every operand is known and the rule can tell every element.
void FollowElements(InferContext& context, const ElementRule& rule) {
  if (!context.outputs[0].has_rank() || !FollowKnown(context, *context.outputs[0].dims)) return;
  const DimList& out = *context.outputs[0].dims;
  std::vector<KnownValues> operands;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    std::optional<KnownValues> values = Stretched(context, i, out);
    if (!values) return;
    operands.push_back(std::move(*values));
  }
  KnownValues result(operands[0].size());
  std::vector<Dim> element(operands.size());
  for (size_t at = 0; at < result.size(); ++at) {
    for (size_t i = 0; i < operands.size(); ++i) element[i] = operands[i][at];
    const std::optional<Dim> value = rule(context.symbols, element);
    if (!value || !ExactIn(context, context.outputs[0].dtype, *value)) return;
    result[at] = *value;
  }
  SetKnown(context, std::move(result));
}

Status SameShape(InferContext& context) {
  context.outputs[0].dims = In(context, 0).dims;
  return {};
}

Status BroadcastAll(InferContext& context) {
  DimList dims;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    if (!Has(context, i)) return Fail(ErrorCode::kInvalidArgument, "input " + std::to_string(i) + " is missing");
    if (!Ranked(context, i)) return {};
    if (i == 0) {
      dims = InDims(context, 0);
    } else {
      ASSIGN_OR_RETURN(dims, BroadcastDims(context, dims, InDims(context, i)));
    }
  }
  SetDims(context, std::move(dims));
  return {};
}

Status SameTypes(const InferContext& context) {
  for (size_t i = 1; i < context.inputs.size(); ++i) RETURN_IF_ERROR(RequireSameType(context, 0, i));
  return {};
}

Status Arithmetic(InferContext& context) {
  RETURN_IF_ERROR(SameTypes(context));
  return BroadcastAll(context);
}

bool IsFloatType(const InferContext& context) {
  return IsFloat(In(context, 0).dtype);
}

std::optional<Dim> Quotient(SymbolTable& symbols, Dim a, Dim b, bool exact_only) {
  if (a.is_const() && b.is_const()) {
    if (b.value() == 0 || (b.value() == -1 && a.value() == INT64_MIN)) return std::nullopt;
    if (exact_only && a.value() % b.value() != 0) return std::nullopt;
    return Dim::Const(a.value() / b.value());
  }
  if (symbols.Bounds(b).min < 1) return std::nullopt;
  if (b.is_const() && symbols.Divisor(a) % b.value() == 0) return symbols.ExactDiv(a, b);
  if (exact_only || symbols.Bounds(a).min < 0) return std::nullopt;  // truncation and floor part below zero
  return symbols.FloorDiv(a, b);
}

std::optional<Dim> Remainder(SymbolTable& symbols, Dim a, Dim b, bool truncating) {
  if (a.is_const() && b.is_const()) {
    if (b.value() == 0) return std::nullopt;
    if (b.value() == -1) return Dim::Const(0);
    int64_t rest = a.value() % b.value();
    if (!truncating && rest != 0 && ((rest < 0) != (b.value() < 0))) rest += b.value();
    return Dim::Const(rest);
  }
  if (symbols.Bounds(b).min < 1) return std::nullopt;
  if (truncating && symbols.Bounds(a).min < 0) return std::nullopt;
  return symbols.Mod(a, b);
}

std::optional<Dim> Truth(std::optional<bool> value) {
  if (!value) return std::nullopt;
  return Dim::Const(*value ? 1 : 0);
}

std::optional<bool> ProvenLess(SymbolTable& symbols, Dim a, Dim b) {
  if (a.is_const() && b.is_const()) return a.value() < b.value();
  const Interval difference = symbols.Bounds(symbols.Sub(a, b));
  if (difference.max < 0) return true;
  if (difference.min >= 0) return false;
  return std::nullopt;
}

std::optional<bool> ProvenSame(SymbolTable& symbols, Dim a, Dim b) {
  if (symbols.ProvenEqual(a, b)) return true;
  if (symbols.ProvenDifferent(a, b)) return false;
  return std::nullopt;
}

std::optional<bool> Negated(std::optional<bool> value) {
  if (!value) return std::nullopt;
  return !*value;
}

// Contents survive a cast when they are exact in the target (floats: see ExactIn). A symbolic dim is taken to fit 32
// bits, as the model's author did; the run-time rule reads the true value.
std::optional<Dim> CastValue(SymbolTable& symbols, Dim value, DType to) {
  if (to == DType::kBool) return Truth(Negated(ProvenSame(symbols, value, Dim::Const(0))));
  if (IsFloat(to) || to == DType::kI64 || (to == DType::kI32 && !value.is_const())) return value;
  const bool is_signed = DTypeClassOf(to) == DTypeClass::kSigned;
  const int64_t bits = DTypeBytes(to) * 8 - (is_signed ? 1 : 0);
  const int64_t limit = bits >= 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
  const Interval bounds = symbols.Bounds(value);
  if (bounds.min < (is_signed ? -limit : 0) || bounds.max > limit) return std::nullopt;
  return value;
}

}  // namespace

// Shape of input 0, contents not followed.
#define KILN_SAME_SHAPE(Name)          \
  Status Name(InferContext& context) { \
    return SameShape(context);         \
  }
KILN_SAME_SHAPE(Sign)
KILN_SAME_SHAPE(Sqrt)
KILN_SAME_SHAPE(Reciprocal)
KILN_SAME_SHAPE(Exp)
KILN_SAME_SHAPE(Log)
KILN_SAME_SHAPE(Sin)
KILN_SAME_SHAPE(Cos)
KILN_SAME_SHAPE(Tan)
KILN_SAME_SHAPE(Asin)
KILN_SAME_SHAPE(Acos)
KILN_SAME_SHAPE(Atan)
KILN_SAME_SHAPE(Sinh)
KILN_SAME_SHAPE(Cosh)
KILN_SAME_SHAPE(Tanh)
KILN_SAME_SHAPE(Asinh)
KILN_SAME_SHAPE(Acosh)
KILN_SAME_SHAPE(Atanh)
KILN_SAME_SHAPE(Erf)
KILN_SAME_SHAPE(Sigmoid)
KILN_SAME_SHAPE(LeakyRelu)
KILN_SAME_SHAPE(ThresholdedRelu)
KILN_SAME_SHAPE(Elu)
KILN_SAME_SHAPE(Celu)
KILN_SAME_SHAPE(Selu)
KILN_SAME_SHAPE(Gelu)
KILN_SAME_SHAPE(HardSigmoid)
KILN_SAME_SHAPE(HardSwish)
KILN_SAME_SHAPE(Mish)
KILN_SAME_SHAPE(Softplus)
KILN_SAME_SHAPE(Softsign)
KILN_SAME_SHAPE(Shrink)
KILN_SAME_SHAPE(BitwiseNot)
KILN_SAME_SHAPE(IsNaN)
KILN_SAME_SHAPE(IsInf)
#undef KILN_SAME_SHAPE

// Unary with contents: expression over `symbols` and `x`.
#define KILN_FOLLOWED_UNARY(Name, expression)                                                                         \
  Status Name(InferContext& context) {                                                                                \
    RETURN_IF_ERROR(SameShape(context));                                                                              \
    FollowElements(                                                                                                   \
        context, []([[maybe_unused]] SymbolTable& symbols, Elements x) -> std::optional<Dim> { return expression; }); \
    return {};                                                                                                        \
  }
KILN_FOLLOWED_UNARY(Neg, symbols.Sub(Dim::Const(0), x[0]))
KILN_FOLLOWED_UNARY(Ceil, x[0])
KILN_FOLLOWED_UNARY(Floor, x[0])
KILN_FOLLOWED_UNARY(Round, x[0])
KILN_FOLLOWED_UNARY(Abs, symbols.Max(x[0], symbols.Sub(Dim::Const(0), x[0])))
KILN_FOLLOWED_UNARY(Relu, symbols.Max(x[0], Dim::Const(0)))
KILN_FOLLOWED_UNARY(Not, Truth(Negated(ProvenSame(symbols, x[0], Dim::Const(1)))))
#undef KILN_FOLLOWED_UNARY

#define KILN_BROADCAST(Name)           \
  Status Name(InferContext& context) { \
    return Arithmetic(context);        \
  }
KILN_BROADCAST(BitShift)
KILN_BROADCAST(BitwiseAnd)
KILN_BROADCAST(BitwiseOr)
KILN_BROADCAST(BitwiseXor)
KILN_BROADCAST(Mean)
#undef KILN_BROADCAST

#define KILN_FOLLOWED(Name, expression)                                                          \
  Status Name(InferContext& context) {                                                           \
    RETURN_IF_ERROR(Arithmetic(context));                                                        \
    FollowElements(context, [&context](SymbolTable& symbols, Elements x) -> std::optional<Dim> { \
      (void)context;                                                                             \
      (void)symbols;                                                                             \
      return expression;                                                                         \
    });                                                                                          \
    return {};                                                                                   \
  }
KILN_FOLLOWED(Add, symbols.Add(x[0], x[1]))
KILN_FOLLOWED(Sub, symbols.Sub(x[0], x[1]))
KILN_FOLLOWED(Mul, symbols.Mul(x[0], x[1]))
KILN_FOLLOWED(Div, Quotient(symbols, x[0], x[1], IsFloatType(context)))
KILN_FOLLOWED(Mod, Remainder(symbols, x[0], x[1], context.attributes.Int("fmod", 0) != 0))
KILN_FOLLOWED(Equal, Truth(ProvenSame(symbols, x[0], x[1])))
KILN_FOLLOWED(Less, Truth(ProvenLess(symbols, x[0], x[1])))
KILN_FOLLOWED(Greater, Truth(ProvenLess(symbols, x[1], x[0])))
KILN_FOLLOWED(LessOrEqual, Truth(Negated(ProvenLess(symbols, x[1], x[0]))))
KILN_FOLLOWED(GreaterOrEqual, Truth(Negated(ProvenLess(symbols, x[0], x[1]))))
KILN_FOLLOWED(And, symbols.Min(x[0], x[1]))
KILN_FOLLOWED(Or, symbols.Max(x[0], x[1]))
KILN_FOLLOWED(Xor, Truth(Negated(ProvenSame(symbols, x[0], x[1]))))
#undef KILN_FOLLOWED

#define KILN_FOLLOWED_VARIADIC(Name, Operation)                                          \
  Status Name(InferContext& context) {                                                   \
    RETURN_IF_ERROR(Arithmetic(context));                                                \
    FollowElements(context, [](SymbolTable& symbols, Elements x) -> std::optional<Dim> { \
      Dim result = x[0];                                                                 \
      for (size_t i = 1; i < x.size(); ++i) result = symbols.Operation(result, x[i]);    \
      return result;                                                                     \
    });                                                                                  \
    return {};                                                                           \
  }
KILN_FOLLOWED_VARIADIC(Min, Min)
KILN_FOLLOWED_VARIADIC(Max, Max)
KILN_FOLLOWED_VARIADIC(Sum, Add)
#undef KILN_FOLLOWED_VARIADIC

Status Pow(InferContext& context) {
  RETURN_IF_ERROR(BroadcastAll(context));
  FollowElements(context, [](SymbolTable& symbols, Elements x) -> std::optional<Dim> {
    if (!x[1].is_const() || x[1].value() < 0 || x[1].value() > 4) return std::nullopt;
    Dim result = Dim::Const(1);
    for (int64_t i = 0; i < x[1].value(); ++i) result = symbols.Mul(result, x[0]);
    return result;
  });
  return {};
}

Status PRelu(InferContext& context) {
  RETURN_IF_ERROR(SameTypes(context));
  RETURN_IF_ERROR(SameShape(context));
  if (!Ranked(context, 0) || !Ranked(context, 1)) return {};
  return RequireBroadcastTo(context, InDims(context, 0), InDims(context, 1), "the slope");
}

Status Cast(InferContext& context) {
  RETURN_IF_ERROR(SameShape(context));
  const DType to = context.outputs[0].dtype;
  FollowElements(context, [to](SymbolTable& symbols, Elements x) { return CastValue(symbols, x[0], to); });
  return {};
}

Status Clip(InferContext& context) {
  RETURN_IF_ERROR(SameShape(context));
  for (size_t i = 1; i < 3; ++i) {
    RETURN_IF_ERROR(RequireSameType(context, 0, i));
    RETURN_IF_ERROR(RequireOneElement(context, i));
  }
  if (!context.outputs[0].has_rank() || !FollowKnown(context, *context.outputs[0].dims)) return {};
  std::optional<KnownValues> values = Known(context, 0);
  if (!values) return {};
  for (size_t i = 1; i < 3; ++i) {
    if (!Has(context, i)) continue;
    const std::optional<KnownValues> bound = Known(context, i);
    if (!bound || bound->size() != 1) return {};
    for (Dim& value : *values) {
      value = i == 1 ? context.symbols.Max(value, bound->front()) : context.symbols.Min(value, bound->front());
    }
  }
  SetKnown(context, std::move(*values));
  return {};
}

Status Where(InferContext& context) {
  RETURN_IF_ERROR(RequireType(context, 0, DType::kBool));
  RETURN_IF_ERROR(RequireSameType(context, 1, 2));
  SetType(context, In(context, 1).dtype);
  RETURN_IF_ERROR(BroadcastAll(context));
  FollowElements(context, [](SymbolTable& symbols, Elements x) -> std::optional<Dim> {
    if (x[0].is_const()) return x[0].value() != 0 ? x[1] : x[2];
    if (symbols.ProvenEqual(x[1], x[2])) return x[1];
    return std::nullopt;
  });
  return {};
}

Status CheckDivisors(InferContext& context) {
  SetDims(context, {});
  return RequireInteger(context, 0);
}

}  // namespace kiln::rules
