#include "compile-service/codegen/cuda/scalar_code.h"

#include <bit>
#include <cmath>
#include <limits>

#include "common/base/check.h"

namespace kiln::codegen::cuda {

using ir::Combine;
using ir::ScalarNode;
using ir::ScalarOp;

namespace {

// The type of an integer in memory without the prelude's attribute, which a template's argument would lose.
std::string_view PlainName(DType storage) {
  switch (storage) {
    case DType::kI8:
      return "signed char";
    case DType::kI16:
      return "short";
    case DType::kU8:
    case DType::kBool:
      return "unsigned char";
    case DType::kU16:
    case DType::kF16:
    case DType::kBF16:
      return "unsigned short";
    case DType::kU32:
      return "unsigned";
    case DType::kU64:
      return "unsigned long long";
    case DType::kF32:
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
      return TypeName(storage);
  }
  __builtin_unreachable();
}

std::string Integer(DType type, int64_t value) {
  if (type == DType::kBool) return value != 0 ? "true" : "false";
  if (type == DType::kI32) return fmt::format("static_cast<int>(0x{:x}u)", static_cast<uint32_t>(value));
  return fmt::format("static_cast<long long>(0x{:x}ull)", static_cast<uint64_t>(value));
}

std::string DoubleLiteral(double number) {
  if (std::isfinite(number)) return fmt::format("{:a}", number);
  return fmt::format("__longlong_as_double(0x{:x}ll)", std::bit_cast<uint64_t>(number));
}

// The prelude's saturating conversion, by the bounds of `to`; bounds that a float has no number for are the next one
// outside.
std::string Saturated(const std::string& value, DType from, DType to) {
  const int64_t bits = 8 * DTypeBytes(to);
  const bool is_unsigned = DTypeClassOf(to) == DTypeClass::kUnsigned;
  const double low = is_unsigned ? 0 : -std::ldexp(1.0, static_cast<int>(bits) - 1);
  const double beyond = std::ldexp(1.0, static_cast<int>(is_unsigned ? bits : bits - 1));
  const std::string_view name = PlainName(to);
  const uint64_t all = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const uint64_t largest = is_unsigned ? all : all >> 1, least = is_unsigned ? 0 : ~largest & all;
  const auto bound = [&](double number) { return Literal(from, number, 0); };
  return fmt::format("kiln_saturated<{0}>({1}, {2}, {3}, static_cast<{0}>(0x{4:x}ull), static_cast<{0}>(0x{5:x}ull))",
                     name, value, bound(low), bound(bits >= 32 ? beyond : beyond - 1), least, largest);
}

}  // namespace

std::string_view TypeName(DType compute) {
  switch (compute) {
    case DType::kF32:
      return "float";
    case DType::kF64:
      return "double";
    case DType::kI32:
      return "int";
    case DType::kI64:
      return "long long";
    case DType::kBool:
      return "bool";
    case DType::kF16:
    case DType::kBF16:
    case DType::kI8:
    case DType::kI16:
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
      break;
  }
  KILN_CHECK(false && "no compute type");
  __builtin_unreachable();
}

std::string StorageName(DType storage) {
  return "kiln_" + std::string(DTypeName(storage));
}

std::string FloatLiteral(double number) {
  const auto value = static_cast<float>(number);
  if (std::isfinite(value)) return fmt::format("{:a}f", static_cast<double>(value));
  return fmt::format("__uint_as_float(0x{:x}u)", std::bit_cast<uint32_t>(value));
}

std::string Literal(DType type, double number, int64_t integer) {
  if (type == DType::kF32) return FloatLiteral(number);
  if (type == DType::kF64) return DoubleLiteral(number);
  return Integer(type, integer);
}

std::string IdentityOf(Combine combine, DType type) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool narrow = type == DType::kI32;
  switch (combine) {
    case Combine::kSum:
      return Literal(type, 0, 0);
    case Combine::kProduct:
      return Literal(type, 1, 1);
    case Combine::kMax:
      return Literal(type, -infinity, narrow ? INT32_MIN : INT64_MIN);
    case Combine::kMin:
      return Literal(type, infinity, narrow ? INT32_MAX : INT64_MAX);
  }
  return {};
}

std::string_view CombineName(Combine combine) {
  switch (combine) {
    case Combine::kSum:
      return "kiln_combine_sum";
    case Combine::kProduct:
      return "kiln_combine_product";
    case Combine::kMax:
      return "kiln_combine_max";
    case Combine::kMin:
      return "kiln_combine_min";
  }
  return {};
}

std::string Converted(const std::string& value, DType from, DType to) {
  if (from == to) return value;
  if (to == DType::kBool) return fmt::format("({} != {})", value, Literal(from, 0, 0));
  if (IsFloat(from) && !IsFloat(to)) return Saturated(value, from, to);
  return fmt::format("static_cast<{}>({})", TypeName(to), value);
}

std::string Loaded(const std::string& element, DType storage, DType type) {
  switch (storage) {
    case DType::kF32:
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
      return Converted(element, storage, type);
    case DType::kBool:
      return Converted(fmt::format("({} != 0)", element), DType::kBool, type);
    case DType::kF16:
      return Converted(fmt::format("kiln_from_f16({})", element), DType::kF32, type);
    case DType::kBF16:
      return Converted(fmt::format("kiln_from_bf16({})", element), DType::kF32, type);
    case DType::kI8:
    case DType::kI16:
    case DType::kU8:
    case DType::kU16:
      return Converted(fmt::format("static_cast<int>({})", element), DType::kI32, type);
    case DType::kU32:
    case DType::kU64:
      if (type == DType::kBool) return fmt::format("({} != 0)", element);
      return fmt::format("static_cast<{}>({})", TypeName(type), element);
  }
  __builtin_unreachable();
}

std::string Stored(const std::string& value, DType type, DType storage) {
  switch (storage) {
    case DType::kF32:
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
      return Converted(value, type, storage);
    case DType::kBool:
      return fmt::format("static_cast<unsigned char>({})", Converted(value, type, DType::kBool));
    case DType::kF16:
      return fmt::format("kiln_to_f16({})", Converted(value, type, DType::kF32));
    case DType::kBF16:
      return fmt::format("kiln_to_bf16({})", Converted(value, type, DType::kF32));
    case DType::kI8:
    case DType::kI16:
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
      if (IsFloat(type)) return Saturated(value, type, storage);
      return fmt::format("static_cast<{}>({})", PlainName(storage), value);
  }
  __builtin_unreachable();
}

std::string ScalarCode::Expression(const ScalarNode& node) const {
  const auto value = [&](int32_t operand) { return operand < 0 ? std::string() : Value(operand); };
  const std::string a = value(node.a), b = value(node.b), c = value(node.c);
  const int32_t last = node.c >= 0 ? node.c : node.b >= 0 ? node.b : node.a;
  const DType operand = last >= 0 ? TypeOf(last) : node.type;
  const bool wide = operand == DType::kF64;
  const auto math = [&](const char* name) { return fmt::format("{}{}({})", name, wide ? "" : "f", a); };
  switch (node.op) {
    case ScalarOp::kLoad:
    case ScalarOp::kLoadAt:
    case ScalarOp::kStageResult:
    case ScalarOp::kAccumulator:
    case ScalarOp::kCoordinate:
    case ScalarOp::kArgument:
      return leaf_(node);
    case ScalarOp::kConstant:
      return Literal(node.type, node.number, node.integer);
    case ScalarOp::kAdd:
      return fmt::format("kiln_add({}, {})", a, b);
    case ScalarOp::kSub:
      return fmt::format("kiln_sub({}, {})", a, b);
    case ScalarOp::kMul:
      return fmt::format("kiln_mul({}, {})", a, b);
    case ScalarOp::kDiv:
      return fmt::format("kiln_div({}, {})", a, b);
    case ScalarOp::kMin:
      return fmt::format("kiln_min({}, {})", a, b);
    case ScalarOp::kMax:
      return fmt::format("kiln_max({}, {})", a, b);
    case ScalarOp::kPow:
      return fmt::format("powf({}, {})", a, b);
    case ScalarOp::kFma:
      return fmt::format("{}({}, {}, {})", wide ? "fma" : "fmaf", a, b, c);
    case ScalarOp::kNeg:
      return IsFloat(operand) ? "-" + a : fmt::format("kiln_sub({}, {})", Literal(operand, 0, 0), a);
    case ScalarOp::kAbs:
      if (IsFloat(operand)) return math("fabs");
      return fmt::format("({0} < 0 ? kiln_sub({1}, {0}) : {0})", a, Literal(operand, 0, 0));
    case ScalarOp::kSqrt:
      return math("sqrt");
    case ScalarOp::kExp:
      return math("exp");
    case ScalarOp::kLog:
      return math("log");
    case ScalarOp::kTanh:
      return math("tanh");
    case ScalarOp::kErf:
      return math("erf");
    case ScalarOp::kSigmoid:
      return fmt::format("kiln_sigmoid({})", a);
    case ScalarOp::kSin:
      return math("sin");
    case ScalarOp::kCos:
      return math("cos");
    case ScalarOp::kFloor:
      return math("floor");
    case ScalarOp::kCeil:
      return math("ceil");
    case ScalarOp::kRound:
      return math("rint");
    case ScalarOp::kLess:
      return fmt::format("{} < {}", a, b);
    case ScalarOp::kLessEqual:
      return fmt::format("{} <= {}", a, b);
    case ScalarOp::kEqual:
      return fmt::format("{} == {}", a, b);
    case ScalarOp::kAnd:
      return fmt::format("{} && {}", a, b);
    case ScalarOp::kOr:
      return fmt::format("{} || {}", a, b);
    case ScalarOp::kNot:
      return "!" + a;
    case ScalarOp::kIsNaN:
      return fmt::format("{0} != {0}", a);
    case ScalarOp::kSelect:
      return fmt::format("{} ? {} : {}", a, b, c);
    case ScalarOp::kConvert:
      return Converted(a, operand, node.type);
    case ScalarOp::kRoundF16:
      return fmt::format("kiln_from_f16(kiln_to_f16({}))", a);
    case ScalarOp::kRoundBF16:
      return fmt::format("kiln_from_bf16(kiln_to_bf16({}))", a);
  }
  __builtin_unreachable();
}

void ScalarCode::Write(const std::vector<bool>& wanted) {
  for (size_t i = 0; i < program_.size(); ++i) {
    if (!wanted[i] || written_[i]) continue;
    written_[i] = true;
    out_.Line("const {} {} = {};", TypeName(program_[i].type), Value(static_cast<int32_t>(i)), Expression(program_[i]));
  }
}

}  // namespace kiln::codegen::cuda
