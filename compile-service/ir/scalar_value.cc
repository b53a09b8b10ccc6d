#include "compile-service/ir/scalar_value.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kiln::ir {

namespace {

Scalar Wrapped(DType type, uint64_t bits) {
  if (type == DType::kI32) return {0, static_cast<int32_t>(static_cast<uint32_t>(bits))};
  return {0, static_cast<int64_t>(bits)};
}

// Truncates, saturates to [low, high], NaN gives 0.
int64_t Saturated(double number, double low, double high, int64_t low_value, int64_t high_value) {
  if (std::isnan(number)) return 0;
  if (number <= low) return low_value;
  if (number >= high) return high_value;
  return static_cast<int64_t>(number);
}

template <class T>
T SaturatedTo(double number) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_same_v<T, uint64_t>) {
    if (!(number > 0)) return 0;
    return number >= 0x1p64 ? Limits::max() : static_cast<uint64_t>(number);
  } else {
    return static_cast<T>(Saturated(number, static_cast<double>(Limits::min()), static_cast<double>(Limits::max()),
                                    static_cast<int64_t>(Limits::min()), static_cast<int64_t>(Limits::max())));
  }
}

Scalar Converted(const Scalar& value, DType from, DType to) {
  if (to == DType::kBool) return {0, IsFloat(from) ? value.number != 0 : value.integer != 0};
  if (IsFloat(from) && IsFloat(to)) return Rounded(to, value.number);
  if (IsFloat(to)) {
    if (to == DType::kF32) return {static_cast<double>(static_cast<float>(value.integer)), 0};
    return {static_cast<double>(value.integer), 0};
  }
  if (!IsFloat(from)) return Wrapped(to, static_cast<uint64_t>(value.integer));
  return {0, to == DType::kI32 ? SaturatedTo<int32_t>(value.number) : SaturatedTo<int64_t>(value.number)};
}

double Minimum(double a, double b) {
  return std::isnan(a) ? a : std::isnan(b) ? b : std::min(a, b);
}

int64_t IntegerDiv(DType type, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return Wrapped(type, uint64_t{0} - static_cast<uint64_t>(a)).integer;
  return a / b;
}

}  // namespace

Scalar Rounded(DType type, double number) {
  return {type == DType::kF32 ? static_cast<double>(static_cast<float>(number)) : number, 0};
}

Scalar LoadElement(DType storage, DType type, const void* pointer, int64_t offset) {
  if (storage == DType::kF32 && type == DType::kF32)
    return {static_cast<double>(static_cast<const float*>(pointer)[offset]), 0};
  return DispatchDType(storage, [&]<class T>() -> Scalar {
    const T element = static_cast<const T*>(pointer)[offset];
    if constexpr (std::is_same_v<T, bool>) {
      return Converted({0, element}, DType::kBool, type);
    } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
      return Converted({static_cast<double>(static_cast<float>(element)), 0}, DType::kF32, type);
    } else if constexpr (std::is_floating_point_v<T>) {
      return Converted({static_cast<double>(element), 0}, storage, type);
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      if (type == DType::kF32) return {static_cast<double>(static_cast<float>(element)), 0};
      if (type == DType::kF64) return {static_cast<double>(element), 0};
      return Converted({0, static_cast<int64_t>(element)}, DType::kI64, type);
    } else {
      return Converted({0, static_cast<int64_t>(element)}, DType::kI64, type);
    }
  });
}

void StoreElement(DType storage, DType type, const Scalar& value, void* pointer, int64_t offset) {
  DispatchDType(storage, [&]<class T>() {
    T& element = static_cast<T*>(pointer)[offset];
    if constexpr (std::is_same_v<T, bool>) {
      element = Converted(value, type, DType::kBool).integer != 0;
    } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
      element = T(static_cast<float>(Converted(value, type, DType::kF32).number));
    } else if constexpr (std::is_floating_point_v<T>) {
      element = static_cast<T>(Converted(value, type, storage).number);
    } else {
      element = IsFloat(type) ? SaturatedTo<T>(value.number) : static_cast<T>(value.integer);
    }
  });
}

double Maximum(double a, double b) {
  return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b);
}

Scalar Combined(Combine combine, DType type, const Scalar& a, const Scalar& b) {
  const auto x = static_cast<uint64_t>(a.integer), y = static_cast<uint64_t>(b.integer);
  const bool is_float = IsFloat(type);
  switch (combine) {
    case Combine::kSum:  // in double: the caller rounds the finished sum
      return is_float ? Scalar{a.number + b.number, 0} : Wrapped(type, x + y);
    case Combine::kProduct:
      return is_float ? Scalar{a.number * b.number, 0} : Wrapped(type, x * y);
    case Combine::kMax:
      return is_float ? Scalar{Maximum(a.number, b.number), 0} : Scalar{0, std::max(a.integer, b.integer)};
    case Combine::kMin:
      return is_float ? Scalar{Minimum(a.number, b.number), 0} : Scalar{0, std::min(a.integer, b.integer)};
  }
  return {};
}

Scalar Identity(Combine combine, DType type) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool narrow = type == DType::kI32;
  switch (combine) {
    case Combine::kSum:
      return {};
    case Combine::kProduct:
      return {1.0, 1};
    case Combine::kMax:
      return {-infinity, narrow ? INT32_MIN : INT64_MIN};
    case Combine::kMin:
      return {infinity, narrow ? INT32_MAX : INT64_MAX};
  }
  return {};
}

Scalar Applied(const ScalarNode& node, DType operand, const Scalar& a, const Scalar& b, const Scalar& c) {
  const DType type = node.type;
  const bool is_float = IsFloat(operand);
  const auto x = static_cast<uint64_t>(a.integer), y = static_cast<uint64_t>(b.integer);
  auto floats = [&](double number) { return Rounded(type, number); };
  auto truth = [](bool value) { return Scalar{0, value}; };
  switch (node.op) {
    case ScalarOp::kLoad:
    case ScalarOp::kStageResult:
    case ScalarOp::kAccumulator:
    case ScalarOp::kCoordinate:
    case ScalarOp::kArgument:
    case ScalarOp::kLoadAt:
      return {};
    case ScalarOp::kConstant:
      return IsFloat(type) ? floats(node.number) : Wrapped(type, static_cast<uint64_t>(node.integer));
    case ScalarOp::kAdd:
      return is_float ? floats(a.number + b.number) : Wrapped(type, x + y);
    case ScalarOp::kSub:
      return is_float ? floats(a.number - b.number) : Wrapped(type, x - y);
    case ScalarOp::kMul:
      return is_float ? floats(a.number * b.number) : Wrapped(type, x * y);
    case ScalarOp::kDiv:
      return is_float ? floats(a.number / b.number) : Scalar{0, IntegerDiv(type, a.integer, b.integer)};
    case ScalarOp::kMin:
      return Combined(Combine::kMin, type, a, b);
    case ScalarOp::kMax:
      return Combined(Combine::kMax, type, a, b);
    case ScalarOp::kPow:
      return floats(std::pow(a.number, b.number));
    case ScalarOp::kFma:
      if (type == DType::kF32)
        return floats(
            std::fma(static_cast<float>(a.number), static_cast<float>(b.number), static_cast<float>(c.number)));
      return floats(std::fma(a.number, b.number, c.number));
    case ScalarOp::kNeg:
      return is_float ? floats(-a.number) : Wrapped(type, uint64_t{0} - x);
    case ScalarOp::kAbs:
      return is_float ? floats(std::fabs(a.number)) : Wrapped(type, a.integer < 0 ? uint64_t{0} - x : x);
    case ScalarOp::kSqrt:
      return floats(std::sqrt(a.number));
    case ScalarOp::kExp:
      return floats(std::exp(a.number));
    case ScalarOp::kLog:
      return floats(std::log(a.number));
    case ScalarOp::kTanh:
      return floats(std::tanh(a.number));
    case ScalarOp::kErf:
      return floats(std::erf(a.number));
    case ScalarOp::kSigmoid:
      return floats(1.0 / (1.0 + std::exp(-a.number)));
    case ScalarOp::kSin:
      return floats(std::sin(a.number));
    case ScalarOp::kCos:
      return floats(std::cos(a.number));
    case ScalarOp::kFloor:
      return floats(std::floor(a.number));
    case ScalarOp::kCeil:
      return floats(std::ceil(a.number));
    case ScalarOp::kRound:
      return floats(std::nearbyint(a.number));
    case ScalarOp::kLess:
      return truth(is_float ? a.number < b.number : a.integer < b.integer);
    case ScalarOp::kLessEqual:
      return truth(is_float ? a.number <= b.number : a.integer <= b.integer);
    case ScalarOp::kEqual:
      return truth(is_float ? a.number == b.number : a.integer == b.integer);
    case ScalarOp::kAnd:
      return truth(a.integer != 0 && b.integer != 0);
    case ScalarOp::kOr:
      return truth(a.integer != 0 || b.integer != 0);
    case ScalarOp::kNot:
      return truth(a.integer == 0);
    case ScalarOp::kIsNaN:
      return truth(std::isnan(a.number));
    case ScalarOp::kSelect:
      return a.integer != 0 ? b : c;
    case ScalarOp::kConvert:
      return Converted(a, operand, type);
    case ScalarOp::kRoundF16:
      return floats(static_cast<float>(Float16(static_cast<float>(a.number))));
    case ScalarOp::kRoundBF16:
      return floats(static_cast<float>(BFloat16(static_cast<float>(a.number))));
  }
  return {};
}

}  // namespace kiln::ir
