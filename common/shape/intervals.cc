#include <algorithm>

#include "common/base/checked_math.h"
#include "common/shape/symbol_table_impl.h"

namespace kiln {
namespace {

constexpr int64_t kPlus = Interval::kNoBound;  // also +infinity
constexpr int64_t kMinus = INT64_MIN;          // also -infinity

bool IsInfinite(int64_t value) {
  return value == kPlus || value == kMinus;
}

int64_t SaturatingMul(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  const bool negative = (a < 0) != (b < 0);
  if (IsInfinite(a) || IsInfinite(b)) return negative ? kMinus : kPlus;
  const auto product = CheckedMul(a, b);
  return product ? *product : negative ? kMinus : kPlus;
}

// A bound that overflows moves outwards, which keeps the interval a superset; one that is already infinite stays.
int64_t AddBound(int64_t a, int64_t b, int64_t infinity) {
  if (a == infinity || b == infinity) return infinity;
  const auto sum = CheckedAdd(a, b);
  if (sum) return *sum;
  return a < 0 ? kMinus : kPlus;
}

}  // namespace

Interval AddIntervals(Interval a, Interval b) {
  return {AddBound(a.min, b.min, kMinus), AddBound(a.max, b.max, kPlus)};
}

Interval MulIntervals(Interval a, Interval b) {
  const int64_t corners[] = {SaturatingMul(a.min, b.min), SaturatingMul(a.min, b.max), SaturatingMul(a.max, b.min),
                             SaturatingMul(a.max, b.max)};
  const auto [low, high] = std::minmax_element(std::begin(corners), std::end(corners));
  return {*low, *high};
}

Interval FloorDivIntervals(Interval a, Interval b) {
  // Only positive divisors evaluate.
  const int64_t small = std::max<int64_t>(b.min, 1);
  const int64_t large = std::max(b.max, small);
  const auto divide = [](int64_t x, int64_t y) {
    if (IsInfinite(x)) return x;
    if (y == kPlus) return x < 0 ? int64_t{-1} : int64_t{0};
    return kiln::FloorDiv(x, y);
  };
  return {divide(a.min, a.min >= 0 ? large : small), divide(a.max, a.max >= 0 ? small : large)};
}

}  // namespace kiln
