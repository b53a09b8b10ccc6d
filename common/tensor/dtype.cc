#include "common/tensor/dtype.h"

#include <bit>

namespace kiln {
namespace {

// Right shift that rounds to nearest, ties to even. Precondition: 0 < shift < 32.
uint32_t ShiftRoundEven(uint32_t value, int shift) {
  const uint32_t half = (uint32_t{1} << (shift - 1)) - 1;
  const uint32_t odd = (value >> shift) & 1;
  return static_cast<uint32_t>((uint64_t{value} + half + odd) >> shift);
}

uint16_t HalfBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN: keeps the upper payload bits, and stays a quiet NaN
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x1ff));
  }
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 2^16 and above, infinity included
  const int exponent = static_cast<int>(magnitude >> 23) - 127 + 15;
  if (exponent > 0) {
    // The carry of the rounding runs into the exponent and, at 65520, into infinity, as it should.
    return static_cast<uint16_t>(sign | ShiftRoundEven(magnitude - (uint32_t{127 - 15} << 23), 13));
  }
  const int shift = 14 - exponent;  // denormal half: the implicit one becomes explicit
  if (shift > 25) return sign;      // below half of the smallest denormal
  const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
  return static_cast<uint16_t>(sign | ShiftRoundEven(mantissa, shift));
}

float HalfValue(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact: at most 10 bits
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

}  // namespace

Float16::Float16(float value) : bits(HalfBits(value)) {}
Float16::operator float() const {
  return HalfValue(bits);
}

BFloat16::BFloat16(float value) {
  const uint32_t raw = std::bit_cast<uint32_t>(value);
  if ((raw & 0x7fffffff) > 0x7f800000) {
    bits = static_cast<uint16_t>((raw >> 16) | 0x40);  // quiet, so that a payload in the lost half stays a NaN
  } else {
    bits = static_cast<uint16_t>(ShiftRoundEven(raw, 16));
  }
}
BFloat16::operator float() const {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
#define KILN_DTYPE(value, name, text, type, bytes, kind) \
  case DType::k##name:                                   \
    return text;
#include "common/tensor/dtypes.def"
#undef KILN_DTYPE
  }
  return "invalid";
}

int64_t DTypeBytes(DType dtype) {
  switch (dtype) {
#define KILN_DTYPE(value, name, text, type, bytes, kind)    \
  case DType::k##name:                                      \
    static_assert(sizeof(type) == bytes, "width of " text); \
    return bytes;
#include "common/tensor/dtypes.def"
#undef KILN_DTYPE
  }
  return 0;
}

DTypeClass DTypeClassOf(DType dtype) {
  switch (dtype) {
#define KILN_DTYPE(value, name, text, type, bytes, kind) \
  case DType::k##name:                                   \
    return DTypeClass::k##kind;
#include "common/tensor/dtypes.def"
#undef KILN_DTYPE
  }
  return DTypeClass::kFloat;
}

std::optional<DType> DTypeFromNumber(int number) {
  switch (number) {
#define KILN_DTYPE(value, name, text, type, bytes, kind) \
  case value:                                            \
    return DType::k##name;
#include "common/tensor/dtypes.def"
#undef KILN_DTYPE
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromName(std::string_view name) {
#define KILN_DTYPE(value, dtype_name, text, type, bytes, kind) \
  if (name == text) return DType::k##dtype_name;
#include "common/tensor/dtypes.def"
#undef KILN_DTYPE
  return std::nullopt;
}

}  // namespace kiln
