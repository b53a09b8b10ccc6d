#include "cli/onnx_test/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace kiln::onnx_test {
namespace {

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

std::string IndexText(int64_t flat, const Dims& dims) {
  std::string text;
  for (int i = dims.rank() - 1; i >= 0; --i) {
    text = std::to_string(flat % dims[i]) + (text.empty() ? "" : ", ") + text;
    flat /= dims[i];
  }
  return "[" + text + "]";
}

template <class T>
std::string ValueText(T value) {
  if constexpr (kIsHalf<T>)
    return fmt::format("{}", static_cast<float>(value));
  else
    return fmt::format("{}", value);
}

template <class T>
bool Close(T actual, T expected, const Tolerance& tolerance) {
  if constexpr (std::is_floating_point_v<T> || kIsHalf<T>) {
    const double a = static_cast<double>(static_cast<std::conditional_t<kIsHalf<T>, float, T>>(actual));
    const double e = static_cast<double>(static_cast<std::conditional_t<kIsHalf<T>, float, T>>(expected));
    if (std::isnan(a) || std::isnan(e)) return std::isnan(a) && std::isnan(e);
    if (std::isinf(a) || std::isinf(e)) return a == e;
    const double relative = kIsHalf<T> ? std::max(tolerance.relative, tolerance.half) : tolerance.relative;
    const double absolute = kIsHalf<T> ? std::max(tolerance.absolute, tolerance.half) : tolerance.absolute;
    return std::abs(a - e) <= absolute + relative * std::abs(e);
  } else {
    return actual == expected;
  }
}

template <class T>
bool SameBits(T actual, T expected) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(actual) && std::isnan(expected)) return true;
  } else if constexpr (kIsHalf<T>) {
    if (std::isnan(static_cast<float>(actual)) && std::isnan(static_cast<float>(expected))) return true;
  }
  return std::memcmp(&actual, &expected, sizeof(T)) == 0;
}

template <class Same>
std::optional<std::string> FirstDifference(const TensorRef& actual, const TensorRef& expected, Same&& same) {
  if (actual.dtype != expected.dtype) {
    return fmt::format("is {}, expected {}", DTypeName(actual.dtype), DTypeName(expected.dtype));
  }
  if (!(actual.dims == expected.dims)) {
    return fmt::format("has shape {}, expected {}", actual.dims.ToString(), expected.dims.ToString());
  }
  const Tensor left = MakeContiguous(actual);
  const Tensor right = MakeContiguous(expected);
  return DispatchDType(actual.dtype, [&]<class T>() -> std::optional<std::string> {
    const std::span<T> a = left.values<T>();
    const std::span<T> e = right.values<T>();
    size_t first = a.size();
    size_t count = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      if (same.template operator()<T>(a[i], e[i])) continue;
      first = std::min(first, i);
      ++count;
    }
    if (count == 0) return std::nullopt;
    return fmt::format("differs at {}: {}, expected {} ({} of {} elements differ)",
                       IndexText(static_cast<int64_t>(first), actual.dims), ValueText(a[first]), ValueText(e[first]),
                       count, a.size());
  });
}

}  // namespace

std::optional<std::string> Difference(const TensorRef& actual, const TensorRef& expected, const Tolerance& tolerance) {
  return FirstDifference(actual, expected, [&]<class T>(T a, T e) { return Close(a, e, tolerance); });
}

std::optional<std::string> BitDifference(const TensorRef& actual, const TensorRef& expected) {
  return FirstDifference(actual, expected, []<class T>(T a, T e) { return SameBits(a, e); });
}

}  // namespace kiln::onnx_test
