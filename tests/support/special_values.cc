#include "tests/support/special_values.h"

#include <cmath>
#include <iterator>
#include <limits>

namespace kiln::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr double kNear[] = {kNaN, kInfinity, -kInfinity, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1.5, 2.5, -2.5};
// Values that every float type has, or rounds to an infinity, a denormal or zero of its own.
constexpr double kCommon[] = {kNaN,    kInfinity, -kInfinity, 0.0,       -0.0,       1.0,         -1.0,
                              0.5,     -0.5,      2.0,        -2.0,      3.0,        -3.0,        1.5,
                              2.5,     -2.5,      0x1p-149,   -0x1p-149, 0x1.8p-130, -0x1.8p-130, 0x1p-126,
                              0x1p-24, -0x1p-24,  0x1p-14,    -0x1.8p-16};
constexpr double kExtreme[] = {0x1.fffffep127, -0x1.fffffep127, 1e38,   -1e38,  1e20,    -1e20,  1e4,     -1e4,
                               65504.0,        -65504.0,        88.0,   -88.0,  89.5,    -104.5, -90.0,   127.5,
                               -128.5,         255.5,           256.0,  0x1p24, -0x1p24, 0x1p31, -0x1p31, 0x1p32,
                               0x1p63,         -0x1p63,         0x1p64, 1e-20,  -1e-20,  1e-30,  20.0,    -20.0};

constexpr int kRoundKinds = 5;

}  // namespace

SpecialValues::SpecialValues(uint64_t seed, int round, Magnitudes magnitudes)
    : random_(seed + static_cast<uint64_t>(round) * 7919), round_(round), magnitudes_(magnitudes) {}

double SpecialValues::Special() {
  if (magnitudes_ == Magnitudes::kNearOne) return kNear[random_() % std::size(kNear)];
  const size_t count = std::size(kCommon) + (magnitudes_ == Magnitudes::kAll ? std::size(kExtreme) : 0);
  const size_t at = random_() % count;
  return at < std::size(kCommon) ? kCommon[at] : kExtreme[at - std::size(kCommon)];
}

double SpecialValues::Ordinary() {
  const double value = std::uniform_real_distribution<double>(-4, 4)(random_);
  return magnitudes_ == Magnitudes::kNearOne ? std::copysign(0.75 + std::abs(value) / 8, value) : value;
}

double SpecialValues::AnyMagnitude(double largest) {
  const double exponent = std::uniform_real_distribution<double>(-150, std::log2(largest))(random_);
  return std::exp2(exponent) * (random_() % 2 == 0 ? 1 : -1);
}

template <class T>
T SpecialValues::Float() {
  const bool wide = magnitudes_ == Magnitudes::kAll;
  const double largest = std::is_same_v<T, Float16> ? 65504.0 : 3.3e38;
  double value = 0;
  switch (round_ % kRoundKinds) {
    case 0:
      value = random_() % 2 == 0 ? Special() : wide && random_() % 2 == 0 ? AnyMagnitude(largest) : Ordinary();
      break;
    case 1:
      value = random_() % 12 == 0 ? Special() : Ordinary();
      break;
    case 2:
      value = Special();
      break;
    case 3:
      value = wide ? AnyMagnitude(largest) : Ordinary();
      break;
    default: {
      const int step = round_ / kRoundKinds % 8;
      const int exponent = magnitudes_ == Magnitudes::kNearOne ? 0 : wide ? 4 - 4 * step : 3 * (step - 4);
      value = Ordinary() * std::exp2(exponent);
      break;
    }
  }
  return static_cast<T>(static_cast<float>(value));
}

template <class T>
T SpecialValues::Integer(bool with_zero) {
  using Limits = std::numeric_limits<T>;
  const T list[] = {Limits::min(),
                    Limits::max(),
                    T(0),
                    T(1),
                    static_cast<T>(-1),
                    T(2),
                    T(3),
                    static_cast<T>(-7),
                    static_cast<T>(Limits::max() - 1),
                    static_cast<T>(Limits::min() + 1)};
  T value = list[random_() % std::size(list)];
  if (random_() % 3 == 0) value = static_cast<T>(random_());
  if (random_() % 4 == 0) value = static_cast<T>(static_cast<int>(random_() % 9) - 4);
  return value == T(0) && !with_zero ? T(3) : value;
}

void SpecialValues::Fill(Tensor& tensor, bool with_zero) {
  DispatchDType(tensor.dtype(), [&]<class T>() {
    const bool same = round_ % kRoundKinds == 2;
    T chosen{};
    bool first = true;
    for (T& value : tensor.values<T>()) {
      if (first || !same) {
        if constexpr (std::is_same_v<T, bool>) {
          chosen = random_() % 2 == 0;
        } else if constexpr (std::is_integral_v<T>) {
          chosen = Integer<T>(with_zero);
        } else {
          chosen = Float<T>();
        }
      }
      first = false;
      value = chosen;
    }
  });
}

}  // namespace kiln::testing
