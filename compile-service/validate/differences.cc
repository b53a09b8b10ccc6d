#include "compile-service/validate/differences.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compile-service/validate/decisions.h"

namespace kiln {
namespace {

constexpr double kHalfTolerance = 2e-2;  // f16 and bf16 storage
// Elements that are compared one by one only where the bytes of their run differ.
constexpr int64_t kComparedRun = 1024;

template <class T>
double NumberOf(T value) {
  return static_cast<double>(static_cast<float>(value));
}
template <>
double NumberOf(double value) {
  return value;
}
template <>
double NumberOf(int64_t value) {
  return static_cast<double>(value);
}
template <>
double NumberOf(int32_t value) {
  return value;
}

template <class T>
double ToleranceOf(double magnitude) {
  return (sizeof(T) == 2 ? kHalfTolerance : kTolerance) * (1 + magnitude);
}

template <class T>
bool Close(T expected, T actual) {
  if constexpr (std::is_integral_v<T>) {
    return expected == actual;
  } else {
    const double a = NumberOf(expected), b = NumberOf(actual);
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    if (std::isinf(a) || std::isinf(b))
      return a == b || (std::abs(a) > 1e38 && std::abs(b) > 1e38 && (a > 0) == (b > 0));
    return std::abs(a - b) <= ToleranceOf<T>(std::abs(a));
  }
}

template <class T>
bool IsExplained(const Difference& difference, T value) {
  if (difference.met) return true;
  if (!(difference.low < difference.high)) return false;
  const double number = NumberOf(value);
  const double room = std::is_integral_v<T>
                          ? 0
                          : difference.high - difference.low +
                                ToleranceOf<T>(std::max(std::abs(difference.low), std::abs(difference.high)));
  return number >= difference.low - room && number <= difference.high + room;
}

}  // namespace

std::vector<Difference> FindDifferences(const PointerExtent& extent, const void* expected, const void* actual) {
  std::vector<Difference> differences;
  DispatchDType(extent.dtype, [&]<class T>() {
    const T* a = static_cast<const T*>(expected);
    const T* b = static_cast<const T*>(actual);
    for (int64_t run = 0; run < extent.elements; run += kComparedRun) {
      const int64_t end = std::min(run + kComparedRun, extent.elements);
      if (std::memcmp(a + run, b + run, static_cast<size_t>(end - run) * sizeof(T)) == 0) continue;
      for (int64_t i = run; i < end; ++i)
        if (!Close(a[i], b[i])) differences.push_back({i, NumberOf(a[i]), NumberOf(a[i])});
    }
  });
  return differences;
}

void Widen(const PointerExtent& extent, const void* leant, const void* actual, std::vector<Difference>& differences) {
  DispatchDType(extent.dtype, [&]<class T>() {
    for (Difference& difference : differences) {
      const T value = static_cast<const T*>(leant)[difference.element];
      const double number = NumberOf(value);
      difference.met = difference.met || Close(value, static_cast<const T*>(actual)[difference.element]);
      difference.low = std::fmin(difference.low, number);
      difference.high = std::fmax(difference.high, number);
    }
  });
}

Status Judge(const PointerExtent& extent, const void* expected, const void* actual,
             const std::vector<Difference>& differences, const std::string& where) {
  return DispatchDType(extent.dtype, [&]<class T>() -> Status {
    const T* b = static_cast<const T*>(actual);
    const auto wrong = [b](const Difference& difference) { return !IsExplained(difference, b[difference.element]); };
    const auto first = std::find_if(differences.begin(), differences.end(), wrong);
    if (first == differences.end()) return {};
    const auto i = static_cast<size_t>(first->element);
    return Fail(ErrorCode::kCompileFailed, where + ": element " + std::to_string(i) + " is " +
                                               std::to_string(NumberOf(b[i])) + ", the reference gives " +
                                               std::to_string(NumberOf(static_cast<const T*>(expected)[i])) + " (" +
                                               std::to_string(std::count_if(first, differences.end(), wrong)) + " of " +
                                               std::to_string(extent.elements) + " are wrong)");
  });
}

}  // namespace kiln
