// Element types: one table (dtypes.def), and the two 16-bit float storage types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln {

// IEEE 754 binary16 and bfloat16 as storage. Arithmetic happens in float; conversions round to nearest even and keep
// NaN, infinities, signed zero and denormals.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  explicit operator float() const;
};

enum class DType : uint8_t {
#define KILN_DTYPE(value, name, text, type, bytes, kind) k##name = value,
#include "common/tensor/dtypes.def"
#undef KILN_DTYPE
};

enum class DTypeClass : uint8_t { kFloat, kSigned, kUnsigned, kBool };

std::string_view DTypeName(DType dtype);
int64_t DTypeBytes(DType dtype);
DTypeClass DTypeClassOf(DType dtype);
inline bool IsFloat(DType dtype) {
  return DTypeClassOf(dtype) == DTypeClass::kFloat;
}
inline bool IsInteger(DType dtype) {
  return DTypeClassOf(dtype) == DTypeClass::kSigned || DTypeClassOf(dtype) == DTypeClass::kUnsigned;
}
// Empty for a number outside the table.
std::optional<DType> DTypeFromNumber(int number);
std::optional<DType> DTypeFromName(std::string_view name);

// Calls `f.template operator()<T>()` with the C++ storage type of `dtype`.
template <class F>
decltype(auto) DispatchDType(DType dtype, F&& f) {
  switch (dtype) {
#define KILN_DTYPE(value, name, text, type, bytes, kind) \
  case DType::k##name:                                   \
    return f.template operator()<type>();
#include "common/tensor/dtypes.def"
#undef KILN_DTYPE
  }
  __builtin_unreachable();
}

}  // namespace kiln
