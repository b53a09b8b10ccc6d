// DFT against its definition, for lengths that split into small factors and for lengths that do not.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <random>

#include "tests/common/ops/op_runner.h"

namespace kiln::testing {
namespace {

using Line = std::vector<std::complex<double>>;

Line Definition(const Line& x, bool inverse) {
  const size_t n = x.size();
  Line y(n);
  for (size_t k = 0; k < n; ++k) {
    for (size_t j = 0; j < n; ++j) {
      const double turn = static_cast<double>(j * k % n) / static_cast<double>(n);
      y[k] += x[j] * std::polar(1.0, (inverse ? 2 : -2) * std::numbers::pi * turn);
    }
    if (inverse) y[k] /= static_cast<double>(n);
  }
  return y;
}

Line RandomLine(int64_t size, std::mt19937& random) {
  std::uniform_real_distribution<double> value(-1, 1);
  Line line(static_cast<size_t>(size));
  for (auto& number : line) number = {value(random), value(random)};
  return line;
}

Tensor Parts(const Line& line) {
  Tensor tensor = Tensor::Allocate(DType::kF64, Dims{1, static_cast<int64_t>(line.size()), 2});
  for (size_t i = 0; i < line.size(); ++i) {
    tensor.ref.as<double>()[2 * i] = line[i].real();
    tensor.ref.as<double>()[2 * i + 1] = line[i].imag();
  }
  return tensor;
}

Result<std::vector<Tensor>> Transform(const Tensor& x, bool inverse) {
  OpCase test_case{.op = TensorOp::kDFT, .inputs = {x.ref}};
  test_case.attributes.Set("inverse", int64_t{inverse});
  return RunOp(test_case);
}

double LargestError(const Tensor& got, const Line& want) {
  EXPECT_EQ(got.ref.elements(), static_cast<int64_t>(2 * want.size()));
  double error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const std::complex<double> value(got.ref.as<double>()[2 * i], got.ref.as<double>()[2 * i + 1]);
    error = std::max(error, std::abs(value - want[i]));
  }
  return error;
}

TEST(Fourier, EveryLengthFollowsTheDefinition) {
  std::mt19937 random(11);
  std::vector<int64_t> lengths = {257, 263, 268, 509, 512, 1000, 1009};
  for (int64_t n = 1; n <= 150; ++n) lengths.push_back(n);
  for (const int64_t n : lengths) {
    for (const bool inverse : {false, true}) {
      const Line line = RandomLine(n, random);
      const auto result = Transform(Parts(line), inverse);
      ASSERT_TRUE(result) << ToString(result.error());
      EXPECT_LT(LargestError((*result)[0], Definition(line, inverse)), 1e-12 * static_cast<double>(n))
          << "length " << n << (inverse ? " inverse" : "");
    }
  }
}

// A prime of this size by the definition alone would take minutes.
TEST(Fourier, ALargePrimeLengthIsQuickAndComesBack) {
  std::mt19937 random(5);
  const Line line = RandomLine(100003, random);
  const auto spectrum = Transform(Parts(line), false);
  ASSERT_TRUE(spectrum) << ToString(spectrum.error());
  const auto result = Transform((*spectrum)[0], true);
  ASSERT_TRUE(result) << ToString(result.error());
  EXPECT_LT(LargestError((*result)[0], line), 1e-9);
}

}  // namespace
}  // namespace kiln::testing
