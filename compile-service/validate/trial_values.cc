#include "compile-service/validate/trial_values.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <type_traits>

namespace kiln {
namespace {

// Positions among `entries`, from either end; some outside of them among special values.
template <class T>
T RandomPosition(std::mt19937_64& random, int64_t entries, const SpecialValues& special) {
  if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>) {
    if (special.largest > 0 && random() % 16 == 0) return static_cast<T>(random());
    return static_cast<T>(static_cast<int64_t>(random() % static_cast<uint64_t>(2 * entries)) - entries);
  } else {
    return T{};
  }
}

template <class T>
T RandomValue(std::mt19937_64& random, const SpecialValues& special) {
  if constexpr (std::is_same_v<T, bool>) {
    return random() % 2 == 0;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 1) {
    return static_cast<T>(random());  // products of bytes count on all of their range
  } else if constexpr (std::is_integral_v<T>) {
    const int value = static_cast<int>(random() % 9);
    return static_cast<T>(std::is_signed_v<T> ? value - 4 : value);
  } else {
    const double largest = special.largest;
    const double specials[] = {0.0, -0.0, largest, -largest, NAN, 1e-40, -1e-40, INFINITY, -INFINITY};
    constexpr size_t kExtremes = 4;  // the last ones
    if (largest > 0 && random() % 16 == 0)
      return static_cast<T>(
          static_cast<float>(specials[random() % (std::size(specials) - (special.extremes ? 0 : kExtremes))]));
    return static_cast<T>(std::uniform_real_distribution<float>(-1.0f, 1.0f)(random));
  }
}

// Random values with a period that is no multiple of any tile or row, so that neighbours differ and large buffers fill
// at memory speed.
constexpr int64_t kRandomPeriod = 4093;

}  // namespace

void FillRandom(const PointerExtent& extent, void* data, std::mt19937_64& random, const SpecialValues& special) {
  DispatchDType(extent.dtype, [&]<class T>() {
    T* values = static_cast<T*>(data);
    const int64_t drawn = std::min(extent.elements, kRandomPeriod);
    const bool positions = extent.entries > 0 && (extent.dtype == DType::kI32 || extent.dtype == DType::kI64);
    for (int64_t i = 0; i < drawn && positions; ++i) values[i] = RandomPosition<T>(random, extent.entries, special);
    for (int64_t i = 0; i < drawn && !positions; ++i)
      values[i] = extent.zeros ? static_cast<T>(0) : RandomValue<T>(random, special);
    if constexpr (std::is_same_v<T, float>) {
      for (int64_t i = 0; i < drawn; ++i) values[i] *= static_cast<float>(extent.size);
    }
    for (int64_t i = drawn; i < extent.elements; i += drawn)
      std::copy(values, values + std::min(drawn, extent.elements - i), values + i);
  });
}

}  // namespace kiln
