// 64-bit size arithmetic that reports overflow instead of wrapping. Used wherever a size comes from input.
#pragma once

#include <cstdint>
#include <optional>

namespace kiln {

inline std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

inline std::optional<int64_t> CheckedSub(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_sub_overflow(a, b, &result)) return std::nullopt;
  return result;
}

inline std::optional<int64_t> CheckedMul(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// Quotient rounded towards minus infinity; b > 0.
inline int64_t FloorDiv(int64_t a, int64_t b) {
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}
// Remainder in [0, b); b > 0.
inline int64_t FloorMod(int64_t a, int64_t b) {
  const int64_t remainder = a % b;
  return remainder < 0 ? remainder + b : remainder;
}
inline int64_t RoundUp(int64_t a, int64_t multiple) {
  return (a + multiple - 1) / multiple * multiple;
}

}  // namespace kiln
