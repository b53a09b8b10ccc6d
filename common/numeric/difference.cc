#include "common/numeric/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>

namespace kiln {
namespace {

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <class T>
auto Printable(T value) {
  if constexpr (kIsHalf<T>)
    return static_cast<float>(value);
  else
    return value;
}

std::string IndexText(int64_t flat, const Dims& dims) {
  std::string text;
  for (int i = dims.rank() - 1; i >= 0; --i) {
    text = std::to_string(flat % dims[i]) + (text.empty() ? "" : ", ") + text;
    flat /= dims[i];
  }
  return "[" + text + "]";
}

// Elements that share a magnitude: innermost dims, as many as it takes for kRowElementsMin elements.
int64_t RowElements(const Dims& dims) {
  int64_t row = 1;
  for (int i = dims.rank() - 1; i >= 0 && row < kRowElementsMin; --i) row *= std::max<int64_t>(1, dims[i]);
  return row;
}

template <class T>
class Agreement {
 public:
  Agreement(std::span<const T> expected, const Dims& dims, const ErrorBound& bound)
      : expected_(expected), bound_(bound), row_(static_cast<size_t>(RowElements(dims))) {}

  // To be asked in ascending order of i.
  bool operator()(size_t i, T actual) {
    const T expected = expected_[i];
    if constexpr (std::is_integral_v<T>) {
      return expected == actual;
    } else {
      const double x = static_cast<double>(Printable(expected)), y = static_cast<double>(Printable(actual));
      if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
      switch (bound_.scope) {
        case ErrorScope::kBits:
          return std::memcmp(&expected, &actual, sizeof(T)) == 0;
        case ErrorScope::kEqual:
          return x == y;
        case ErrorScope::kElement:
          return x == y || std::abs(x - y) <= Allowed(std::abs(x));
        case ErrorScope::kRow:
          return x == y || std::abs(x - y) <= Allowed(Largest(i));
      }
      return false;
    }
  }

 private:
  double Allowed(double magnitude) const {
    return std::isfinite(magnitude) ? bound_.relative * (magnitude + bound_.floor) + bound_.tiny : 0;
  }
  double Largest(size_t i) {
    if (i >= row_end_ || row_end_ == 0) {
      const size_t begin = i / row_ * row_;
      row_end_ = std::min(begin + row_, expected_.size());
      largest_ = 0;
      for (size_t j = begin; j < row_end_; ++j) {
        const double magnitude = std::abs(static_cast<double>(Printable(expected_[j])));
        if (std::isfinite(magnitude)) largest_ = std::max(largest_, magnitude);
      }
    }
    return largest_;
  }

  const std::span<const T> expected_;
  const ErrorBound bound_;
  const size_t row_;
  size_t row_end_ = 0;
  double largest_ = 0;
};

// By how much, without a word of what the values are.
std::string RelativeText(double expected, double actual) {
  const double size = std::abs(actual - expected) / std::max(std::abs(expected), std::abs(actual));
  return std::isfinite(size) ? fmt::format(" by {:.1e} of its size", size) : "";
}

}  // namespace

std::optional<std::string> FirstDifference(const TensorRef& expected, const TensorRef& actual, const ErrorBound& bound,
                                           DifferenceText text) {
  if (expected.dtype != actual.dtype)
    return fmt::format("is {}, expected {}", DTypeName(actual.dtype), DTypeName(expected.dtype));
  if (!(expected.dims == actual.dims))
    return fmt::format("has shape {}, expected {}", actual.dims.ToString(), expected.dims.ToString());
  const Tensor dense_expected = MakeContiguous(expected), dense_actual = MakeContiguous(actual);
  return DispatchDType(expected.dtype, [&]<class T>() -> std::optional<std::string> {
    const std::span<T> e = dense_expected.values<T>(), a = dense_actual.values<T>();
    Agreement<T> agrees(e, expected.dims, bound);
    size_t first = e.size(), count = 0;
    for (size_t i = 0; i < e.size(); ++i) {
      if (agrees(i, a[i])) continue;
      first = std::min(first, i);
      ++count;
    }
    if (count == 0) return std::nullopt;
    const std::string index = IndexText(static_cast<int64_t>(first), expected.dims);
    if (text == DifferenceText::kWithoutValues)
      return fmt::format(
          "differs at {}{} ({} of {} elements differ)", index,
          RelativeText(static_cast<double>(Printable(e[first])), static_cast<double>(Printable(a[first]))), count,
          e.size());
    return fmt::format("differs at {}: {}, expected {} ({} of {} elements differ)", index, Printable(a[first]),
                       Printable(e[first]), count, e.size());
  });
}

}  // namespace kiln
