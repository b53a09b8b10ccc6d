#include "common/tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace kiln {
namespace {

// The value of a 16-bit float pattern by the formula of its format, as a double; NaN patterns excluded.
double Value(uint16_t bits, int mantissa_bits, int bias) {
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                         : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

struct Format {
  int mantissa_bits;
  int bias;
  uint16_t infinity;
};
constexpr Format kHalf{10, 15, 0x7c00};
constexpr Format kBrain{7, 127, 0x7f80};

template <class F>
void CheckEveryPattern(const Format& format) {
  for (uint32_t pattern = 0; pattern <= 0xffff; ++pattern) {
    F value;
    value.bits = static_cast<uint16_t>(pattern);
    const float wide = static_cast<float>(value);
    const uint32_t magnitude = pattern & 0x7fff;
    if (magnitude > format.infinity) {
      EXPECT_TRUE(std::isnan(wide)) << pattern;
      const F back(wide);
      EXPECT_GT(back.bits & 0x7fff, format.infinity) << pattern;
      EXPECT_EQ(back.bits & 0x8000, static_cast<int>(pattern & 0x8000)) << pattern;
      continue;
    }
    if (magnitude == format.infinity) {
      EXPECT_TRUE(std::isinf(wide)) << pattern;
    } else {
      EXPECT_EQ(static_cast<double>(wide), Value(value.bits, format.mantissa_bits, format.bias)) << pattern;
    }
    EXPECT_EQ(F(wide).bits, pattern);
    EXPECT_EQ(std::signbit(wide), (pattern & 0x8000) != 0);
  }
}

// Between each two neighbours: the middle goes to the even one, a float just beside the middle to the nearer one.
template <class F>
void CheckEveryRounding(const Format& format) {
  for (uint32_t low = 0; low < format.infinity; ++low) {
    const double a = Value(static_cast<uint16_t>(low), format.mantissa_bits, format.bias);
    // The neighbour of the largest finite value is where infinity would stand if the exponent went on.
    const double b = Value(static_cast<uint16_t>(low + 1), format.mantissa_bits, format.bias);
    const float middle = static_cast<float>((a + b) / 2);
    ASSERT_EQ(static_cast<double>(middle), (a + b) / 2) << low;
    const uint32_t even = low % 2 == 0 ? low : low + 1;
    EXPECT_EQ(F(middle).bits, even) << low;
    EXPECT_EQ(F(std::nextafter(middle, 0.0f)).bits, low) << low;
    EXPECT_EQ(F(std::nextafter(middle, std::numeric_limits<float>::infinity())).bits, low + 1) << low;
    EXPECT_EQ(F(-middle).bits, even | 0x8000) << low;
  }
}

TEST(Float16, EveryPatternHasItsValueAndComesBack) {
  CheckEveryPattern<Float16>(kHalf);
}
TEST(BFloat16, EveryPatternHasItsValueAndComesBack) {
  CheckEveryPattern<BFloat16>(kBrain);
}
TEST(Float16, RoundsToNearestEven) {
  CheckEveryRounding<Float16>(kHalf);
}
TEST(BFloat16, RoundsToNearestEven) {
  CheckEveryRounding<BFloat16>(kBrain);
}

TEST(Float16, TinyAndHugeFloats) {
  EXPECT_EQ(Float16(1e-30f).bits, 0);
  EXPECT_EQ(Float16(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
  EXPECT_EQ(Float16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16(1e30f).bits, 0x7c00);
}

TEST(Floats, NaNWithAPayloadInTheLostHalfStaysNaN) {
  for (uint32_t payload : {1u, 0x1fffu, 0x2000u, 0x3fffffu}) {
    const float nan = std::bit_cast<float>(0x7f800000u | payload);
    EXPECT_TRUE(std::isnan(static_cast<float>(Float16(nan)))) << payload;
    EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(nan)))) << payload;
  }
}

TEST(DType, TableIsConsistent) {
  int rows = 0;
  for (int number = -1; number < 64; ++number) {
    const auto dtype = DTypeFromNumber(number);
    if (!dtype) continue;
    ++rows;
    EXPECT_EQ(static_cast<int>(*dtype), number);
    EXPECT_EQ(DTypeFromName(DTypeName(*dtype)), dtype);
    const int64_t bytes = DispatchDType(*dtype, []<class T>() { return static_cast<int64_t>(sizeof(T)); });
    EXPECT_EQ(bytes, DTypeBytes(*dtype));
  }
  EXPECT_EQ(rows, 13);
  EXPECT_FALSE(DTypeFromName("f8"));
  EXPECT_FALSE(DTypeFromNumber(8));  // ONNX's string
  EXPECT_TRUE(IsFloat(DType::kBF16));
  EXPECT_TRUE(IsInteger(DType::kU8));
  EXPECT_FALSE(IsInteger(DType::kBool));
}

}  // namespace
}  // namespace kiln
