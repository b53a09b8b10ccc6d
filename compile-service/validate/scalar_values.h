// Arithmetic on single values of a spec's types, as ir::EvaluateSpec has it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/tensor/dtype.h"

namespace kiln {

double MinimumOf(double a, double b);  // a NaN wins
double MaximumOf(double a, double b);

namespace scalar_values {

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// Truncates, saturates; NaN gives 0.
template <class T>
T Saturated(double number) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(number)) return 0;
  if (number <= static_cast<double>(Limits::min())) return Limits::min();
  if (number >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<T>(number);
}

// Between any two of the storage and compute types.
template <class To, class From>
To ConvertTo(From value) {
  if constexpr (kIsHalf<From>) {
    return ConvertTo<To>(static_cast<float>(value));
  } else if constexpr (kIsHalf<To>) {
    return To(ConvertTo<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return Saturated<To>(static_cast<double>(value));
  } else {
    return static_cast<To>(value);
  }
}

// Calls `f.template operator()<T>()` with the C++ type of a compute type.
template <class F>
void DispatchCompute(DType type, F&& f) {
  if (type == DType::kF32) return f.template operator()<float>();
  if (type == DType::kF64) return f.template operator()<double>();
  if (type == DType::kI32) return f.template operator()<int32_t>();
  if (type == DType::kI64) return f.template operator()<int64_t>();
  return f.template operator()<bool>();
}

// Integers wrap: their sums and products are computed without sign.
template <class T, class F>
T Wrapping(T a, T b, F&& f) {
  if constexpr (std::is_same_v<T, bool> || std::is_floating_point_v<T>) {
    return f(a, b);
  } else {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(f(static_cast<Unsigned>(a), static_cast<Unsigned>(b)));
  }
}

template <class T>
T Quotient(T a, T b) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (b == 0) return 0;
    if (b == -1) return Wrapping(T{0}, a, [](auto x, auto y) { return x - y; });
    return a / b;
  } else if constexpr (std::is_floating_point_v<T>) {
    return a / b;
  } else {
    return a;
  }
}

template <class T>
T Least(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(MinimumOf(a, b));
  return std::min(a, b);
}
template <class T>
T Largest(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(MaximumOf(a, b));
  return std::max(a, b);
}

inline double Sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

}  // namespace scalar_values
}  // namespace kiln
