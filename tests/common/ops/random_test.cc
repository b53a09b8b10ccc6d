// What is drawn has the distribution that the node asks for: moments within five standard errors, and a chi-square sum
// over bins within five deviations of its own. The seeds are fixed, so nothing here depends on luck.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/common/ops/op_runner.h"

namespace kiln::testing {
namespace {

constexpr int64_t kCount = 200'001;  // odd: the last block is used by half

std::vector<double> Draw(TensorOp op, const Attributes& attributes, int64_t count = kCount,
                         RandomDraw random = {3, 0}) {
  const Tensor shape = I64({1}, {count});
  const auto drawn = RunOp({.op = op, .attributes = attributes, .inputs = {shape.ref}, .random = random});
  EXPECT_TRUE(drawn.has_value()) << ToString(drawn.error());
  return drawn.has_value() ? Values((*drawn)[0].ref) : std::vector<double>(static_cast<size_t>(count));
}

Attributes Normal(double mean, double scale, DType dtype = DType::kF32) {
  Attributes attributes;
  attributes.Set("mean", mean);
  attributes.Set("scale", scale);
  attributes.Set("dtype", static_cast<int64_t>(dtype));
  return attributes;
}

Attributes Uniform(double low, double high, DType dtype = DType::kF32) {
  Attributes attributes;
  attributes.Set("low", low);
  attributes.Set("high", high);
  attributes.Set("dtype", static_cast<int64_t>(dtype));
  return attributes;
}

double MeanOf(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Mean of ((x - mean) / deviation)^power.
double Moment(const std::vector<double>& values, double mean, double deviation, int power) {
  double sum = 0;
  for (const double value : values) sum += std::pow((value - mean) / deviation, power);
  return sum / static_cast<double>(values.size());
}

// Of counts beside the expected shares; `degrees` below the number of bins that are not empty by design.
void ExpectChiSquare(const std::vector<int64_t>& counts, const std::vector<double>& shares) {
  const double total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  double sum = 0, degrees = -1;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = shares[i] * total, difference = static_cast<double>(counts[i]) - expected;
    if (shares[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "class " << i;
      continue;
    }
    sum += difference * difference / expected;
    ++degrees;
  }
  EXPECT_LT(sum, degrees + 5 * std::sqrt(2 * degrees) + 5);
  EXPECT_GT(sum, degrees - 5 * std::sqrt(2 * degrees));
}

// Bins of equal share by a cumulative distribution.
template <class Cumulative>
void ExpectDistribution(const std::vector<double>& values, Cumulative cumulative) {
  constexpr size_t kBins = 100;
  std::vector<int64_t> counts(kBins, 0);
  for (const double value : values) ++counts[std::min(kBins - 1, static_cast<size_t>(cumulative(value) * kBins))];
  ExpectChiSquare(counts, std::vector<double>(kBins, 1.0 / kBins));
}

TEST(RandomNormal, HasTheMomentsAndTheDistributionOfItsAttributes) {
  struct Case {
    double mean, scale;
  };
  for (const Case& c : {Case{0, 1}, Case{-3, 0.25}, Case{100, 7}}) {
    SCOPED_TRACE(c.mean);
    const std::vector<double> values = Draw(TensorOp::kRandomNormal, Normal(c.mean, c.scale));
    const double error = 1 / std::sqrt(static_cast<double>(kCount));
    // Standard errors of the moments of a normal distribution: 1, sqrt 2, sqrt 15, sqrt 96.
    EXPECT_NEAR(Moment(values, c.mean, c.scale, 1), 0, 5 * error);
    EXPECT_NEAR(Moment(values, c.mean, c.scale, 2), 1, 5 * std::sqrt(2.0) * error);
    EXPECT_NEAR(Moment(values, c.mean, c.scale, 3), 0, 5 * std::sqrt(15.0) * error);
    EXPECT_NEAR(Moment(values, c.mean, c.scale, 4), 3, 5 * std::sqrt(96.0) * error);
    ExpectDistribution(values, [&](double x) { return 0.5 * std::erfc(-(x - c.mean) / c.scale / std::sqrt(2.0)); });
  }
}

// Numbers of one block come from one radius and one angle; neighbours must not show it.
TEST(RandomNormal, NeighboursAreIndependent) {
  const std::vector<double> values = Draw(TensorOp::kRandomNormal, Normal(0, 1));
  for (const size_t lag : {1u, 2u, 3u}) {
    double product = 0, squares = 0;
    for (size_t i = 0; i + lag < values.size(); ++i) {
      product += values[i] * values[i + lag];
      squares += (values[i] * values[i] - 1) * (values[i + lag] * values[i + lag] - 1);
    }
    const double count = static_cast<double>(values.size());
    EXPECT_NEAR(product / count, 0, 5 / std::sqrt(count)) << lag;
    EXPECT_NEAR(squares / count, 0, 10 / std::sqrt(count)) << lag;
  }
}

TEST(RandomUniform, HasTheMomentsAndTheDistributionOfItsAttributes) {
  struct Case {
    double low, high;
  };
  for (const Case& c : {Case{0, 1}, Case{-2, 6}, Case{5, 5.5}}) {
    SCOPED_TRACE(c.low);
    const std::vector<double> values = Draw(TensorOp::kRandomUniform, Uniform(c.low, c.high));
    const double width = c.high - c.low, error = 1 / std::sqrt(static_cast<double>(kCount));
    EXPECT_NEAR(MeanOf(values), (c.low + c.high) / 2, 5 * error * width / std::sqrt(12.0));
    EXPECT_NEAR(Moment(values, (c.low + c.high) / 2, width, 2), 1.0 / 12, 5 * error * std::sqrt(1.0 / 180));
    for (const double value : values) {
      ASSERT_GE(value, c.low);
      ASSERT_LT(value, c.high);
    }
    ExpectDistribution(values, [&](double x) { return (x - c.low) / width; });
  }
}

// The same draws, rounded: no type has a distribution of its own.
TEST(RandomOps, EveryTypeRoundsTheSameDraws) {
  const std::vector<double> normal = Draw(TensorOp::kRandomNormal, Normal(1, 2, DType::kF64), 4001);
  const std::vector<double> uniform = Draw(TensorOp::kRandomUniform, Uniform(-1, 3, DType::kF64), 4001);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const double roundoff = dtype == DType::kF32 ? 0x1p-24 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
    const std::vector<double> rounded_normal = Draw(TensorOp::kRandomNormal, Normal(1, 2, dtype), 4001);
    const std::vector<double> rounded_uniform = Draw(TensorOp::kRandomUniform, Uniform(-1, 3, dtype), 4001);
    for (size_t i = 0; i < normal.size(); ++i) {
      EXPECT_NEAR(rounded_normal[i], normal[i], std::abs(normal[i]) * roundoff * 1.001 + 0x1p-24);
      EXPECT_NEAR(rounded_uniform[i], uniform[i], std::abs(uniform[i]) * roundoff * 2.001 + 0x1p-24);
    }
  }
}

// log(1 - x) of a Gumbel or an exponential number must stay finite in every type.
TEST(RandomUniform, StaysInItsRangeAndNeverReachesItsUpperEnd) {
  struct Case {
    double low, high;
  };
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    for (const Case& c : {Case{0, 1}, Case{-1, 0}, Case{-3, -2}, Case{1, 1.001}, Case{-1e30, 1e30}, Case{0, 0.1},
                          Case{0.1, 0.2}, Case{-0.3, -0.1}, Case{-1e6, 0}}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(c.high));
      for (const double value : Draw(TensorOp::kRandomUniform, Uniform(c.low, c.high, dtype), 50'000)) {
        ASSERT_GE(value, c.low);
        ASSERT_LT(value, std::max(c.high, Values(Make(dtype, {1}, {c.low}).ref)[0] + 1e-300));
      }
    }
}

TEST(RandomOps, OtherKeysAndOtherCallsDrawOtherNumbers) {
  const auto draw = [](RandomDraw random) { return Draw(TensorOp::kRandomNormal, Normal(0, 1), 10'000, random); };
  const std::vector<double> first = draw({1, 0});
  EXPECT_EQ(first, draw({1, 0}));
  for (const RandomDraw random : {RandomDraw{2, 0}, RandomDraw{1, 1}}) {
    const std::vector<double> other = draw(random);
    double product = 0;
    size_t equal = 0;
    for (size_t i = 0; i < first.size(); ++i) {
      product += first[i] * other[i];
      equal += first[i] == other[i];
    }
    EXPECT_LT(std::abs(product) / 10'000, 0.05);
    EXPECT_LE(equal, 1u);
  }
}

std::vector<int64_t> CountClasses(const Tensor& log_probabilities, int64_t samples, DType dtype) {
  OpCase test{.op = TensorOp::kMultinomial, .inputs = {log_probabilities.ref}, .random = {9, 4}};
  test.attributes.Set("sample_size", samples);
  test.attributes.Set("dtype", static_cast<int64_t>(dtype));
  const auto drawn = RunOp(test);
  EXPECT_TRUE(drawn.has_value()) << ToString(drawn.error());
  if (!drawn.has_value()) return {};
  EXPECT_EQ((*drawn)[0].dtype(), dtype);
  const int64_t rows = log_probabilities.dims()[0], classes = log_probabilities.dims()[1];
  EXPECT_EQ((*drawn)[0].dims(), (Dims{rows, samples}));
  std::vector<int64_t> counts(static_cast<size_t>(rows * classes), 0);
  const std::vector<double> values = Values((*drawn)[0].ref);
  for (size_t i = 0; i < values.size(); ++i)
    ++counts[static_cast<size_t>((static_cast<int64_t>(i) / samples) * classes) + static_cast<size_t>(values[i])];
  return counts;
}

// Unnormalised: the second row is the first one shifted, far beyond what e^x holds.
TEST(Multinomial, DrawsClassesByTheirProbabilities) {
  const std::vector<double> shares = {0.5, 0.2, 0.125, 0.1, 0.05, 0.024, 0, 0.001};
  for (const DType type : {DType::kF32, DType::kF64})
    for (const DType dtype : {DType::kI32, DType::kI64}) {
      std::vector<double> logs;
      for (const double shift : {0.0, 3000.0})
        for (const double share : shares) logs.push_back(std::log(share) + shift);
      const std::vector<int64_t> counts = CountClasses(Make(type, {2, 8}, logs), 100'001, dtype);
      ASSERT_EQ(counts.size(), 16u);
      ExpectChiSquare({counts.begin(), counts.begin() + 8}, shares);
      ExpectChiSquare({counts.begin() + 8, counts.end()}, shares);
    }
}

TEST(Multinomial, HalvesAreReadAsTheyAre) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const std::vector<int64_t> counts = CountClasses(Make(type, {1, 3}, {-1, 0, -1}), 50'000, DType::kI32);
    const double side = std::exp(-1.0) / (1 + 2 * std::exp(-1.0));
    ExpectChiSquare(counts, {side, 1 - 2 * side, side});
  }
}

std::string ErrorOf(OpCase test) {
  const auto result = RunOp(test);
  return result.has_value() ? "ok" : ToString(result.error());
}

void ExpectError(const std::string& error, const std::string& part) {
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(RandomOps, RefuseAttributesThatAreNoDistribution) {
  const Tensor shape = I64({1}, {2});
  const auto error = [&](TensorOp op, const Attributes& attributes) {
    return ErrorOf({.op = op, .attributes = attributes, .inputs = {shape.ref}});
  };
  ExpectError(error(TensorOp::kRandomNormal, Normal(0, -1)), "`scale` of RandomNormal, the standard deviation, is -1");
  ExpectError(error(TensorOp::kRandomNormal, Normal(std::nan(""), 1)), "`mean` of RandomNormal is nan");
  ExpectError(error(TensorOp::kRandomUniform, Uniform(2, 1)), "`low` of RandomUniform is 2");
  ExpectError(error(TensorOp::kRandomUniform, Uniform(0, INFINITY)), "`high` of RandomUniform is inf");
  ExpectError(error(TensorOp::kRandomNormal, Normal(0, 1, DType::kI32)), "`dtype` of RandomNormal is i32");
  Attributes unknown;
  unknown.Set("dtype", int64_t{77});
  ExpectError(error(TensorOp::kRandomUniform, unknown), "element type number 77");
  const Tensor negative = I64({2}, {2, -1});
  EXPECT_NE(ErrorOf({.op = TensorOp::kRandomNormal, .inputs = {negative.ref}}), "ok");
}

TEST(Multinomial, RefusesRowsThatHaveNoClassToDraw) {
  const auto error = [](const Tensor& x, int64_t samples = 1, DType dtype = DType::kI32) {
    OpCase test{.op = TensorOp::kMultinomial, .inputs = {x.ref}};
    test.attributes.Set("sample_size", samples);
    test.attributes.Set("dtype", static_cast<int64_t>(dtype));
    return ErrorOf(test);
  };
  const float kNone = -INFINITY;
  ExpectError(error(F32({2, 2}, {0, 1, kNone, kNone})), "row 1 of Multinomial has no class to draw: all");
  ExpectError(error(F32({1, 2}, {0, NAN})), "row 0 of Multinomial has nan for class 1");
  ExpectError(error(F32({1, 2}, {INFINITY, 0})), "row 0 of Multinomial has inf for class 0");
  ExpectError(error(F32({1, 0}, {})), "row 0 of Multinomial has no class to draw: it is empty");
  ExpectError(error(F32({1, 2}, {0, 0}), -1), "`sample_size` of Multinomial is -1");
  ExpectError(error(F32({1, 2}, {0, 0}), 1, DType::kF32), "`dtype` of Multinomial is f32");
  EXPECT_NE(error(I32({1, 2}, {0, 0})), "ok");
}

}  // namespace
}  // namespace kiln::testing
