// Equality of tensors within tolerances.
#pragma once

#include <optional>
#include <string>

#include "common/tensor/tensor.h"

namespace kiln::onnx_test {

// |actual - expected| <= absolute + relative * |expected|, NaN equals NaN, infinities must match. Integers and bool are
// exact.
struct Tolerance {
  double relative = 1e-3;
  double absolute = 1e-5;
  double half = 1e-2;  // both bounds for f16 and bf16, where it is larger
};

// What differs first (dtype, shape, or an element with its index and both values), or nullopt.
std::optional<std::string> Difference(const TensorRef& actual, const TensorRef& expected, const Tolerance& tolerance);
// The same, bit for bit; any NaN equals any NaN.
std::optional<std::string> BitDifference(const TensorRef& actual, const TensorRef& expected);

}  // namespace kiln::onnx_test
