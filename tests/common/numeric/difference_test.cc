#include "common/numeric/difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kiln {
namespace {

Tensor Of(const Dims& dims, const std::vector<float>& values) {
  return Tensor::Of<float>(DType::kF32, dims, values);
}
bool Agree(const Tensor& expected, const Tensor& actual, const ErrorBound& bound) {
  return !FirstDifference(expected.ref, actual.ref, bound).has_value();
}

TEST(FirstDifference, NamesTheElementBothValuesAndHowMany) {
  const auto difference = FirstDifference(Of({2, 2}, {1, 2, 3, 4}).ref, Of({2, 2}, {1, 2, 5, 6}).ref, {});
  EXPECT_EQ(difference.value_or(""), "differs at [1, 0]: 5, expected 3 (2 of 4 elements differ)");
  EXPECT_EQ(FirstDifference(Of({2}, {1, 2}).ref, Of({1, 2}, {1, 2}).ref, {}).value_or(""),
            "has shape [1, 2], expected [2]");
}

TEST(FirstDifference, BitsTellZeroesApart_EqualDoesNot) {
  const Tensor zero = Of({1}, {0.0f}), negative = Of({1}, {-0.0f}), nan = Of({1}, {NAN});
  EXPECT_FALSE(Agree(zero, negative, {ErrorScope::kBits}));
  EXPECT_TRUE(Agree(zero, negative, {ErrorScope::kEqual}));
  EXPECT_TRUE(Agree(nan, nan, {ErrorScope::kBits}));
  EXPECT_FALSE(Agree(nan, zero, {ErrorScope::kRow, 1, 1, 1}));
}

TEST(FirstDifference, ElementScopeIsRelativeToTheElement) {
  const ErrorBound bound{ErrorScope::kElement, 1e-3};
  EXPECT_TRUE(Agree(Of({2}, {1000, 1}), Of({2}, {1000.5f, 1.0005f}), bound));
  EXPECT_FALSE(Agree(Of({2}, {1000, 1}), Of({2}, {1000, 1.1f}), bound)) << "a big neighbour is no excuse";
}

TEST(FirstDifference, RowScopeIsRelativeToTheRowsLargest) {
  const ErrorBound bound{ErrorScope::kRow, 1e-3};
  std::vector<float> a(32, 1e-3f), b = a;
  a[0] = b[0] = 1000;
  b[1] = 0.5f;
  EXPECT_TRUE(Agree(Of({2, 16}, a), Of({2, 16}, b), bound)) << "0.5 beside 1000 is rounding";
  b[17] = 0.5f;
  EXPECT_FALSE(Agree(Of({2, 16}, a), Of({2, 16}, b), bound)) << "beside 0.001 it is not";
}

TEST(FirstDifference, ShortRowsCountWithTheirNeighbours) {
  const ErrorBound bound{ErrorScope::kRow, 1e-3};
  const std::vector<float> a = {1000, 1e-3f, 2, 3}, b = {1000, 0.5f, 2, 3};
  EXPECT_TRUE(Agree(Of({4, 1}, a), Of({4, 1}, b), bound)) << "one term of a sum that cancelled";
}

TEST(FirstDifference, AnInfinityAgreesOnlyWithItself) {
  const ErrorBound bound{ErrorScope::kRow, 1e-3, 1, 1};
  const Tensor infinite = Of({2}, {INFINITY, 1}), large = Of({2}, {3e38f, 1});
  EXPECT_TRUE(Agree(infinite, infinite, bound));
  EXPECT_FALSE(Agree(infinite, large, bound));
  EXPECT_FALSE(Agree(large, infinite, bound));
}

TEST(FirstDifference, IntegersAreExactInEveryScope) {
  const std::vector<int64_t> a = {1, 2}, b = {1, 3};
  const Tensor x = Tensor::Of<int64_t>(DType::kI64, {2}, a), y = Tensor::Of<int64_t>(DType::kI64, {2}, b);
  EXPECT_TRUE(Agree(x, x, {ErrorScope::kRow, 1, 1, 1}));
  EXPECT_FALSE(Agree(x, y, {ErrorScope::kRow, 1, 1, 1}));
}

}  // namespace
}  // namespace kiln
