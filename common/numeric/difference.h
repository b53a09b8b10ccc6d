// The one comparison of tensors: shadow checks, `kiln run --check`, `kiln onnx-test`, compare mode.
#pragma once

#include <optional>
#include <string>

#include "common/numeric/error_bounds.h"
#include "common/tensor/tensor.h"

namespace kiln {

// Values are for who asked for a comparison of his own tensors. What goes into logs and to other processes of the fleet
// says by what share an element differs.
enum class DifferenceText : uint8_t { kWithValues, kWithoutValues };

// What differs first (dtype, shape, or an element with its index and both values, and how many do), or nothing. NaN
// agrees with NaN, an infinity only with itself, integers and bool only with equal values.
std::optional<std::string> FirstDifference(const TensorRef& expected, const TensorRef& actual, const ErrorBound& bound,
                                           DifferenceText text = DifferenceText::kWithValues);

}  // namespace kiln
