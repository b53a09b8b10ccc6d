// Dot products of one row with neighbouring columns, summed in double: the inner loop of the reference.
#pragma once

#include <cstdint>
#include <span>

namespace kiln {

// out[j] = float(sum over k, in order, of row[k] * columns[k * stride + j]), 0 <= j < n. Products of floats are exact
// in double, so that the result does not depend on the host's instructions.
void DotColumns(std::span<const double> row, const float* columns, int64_t stride, int64_t n, float* out);

}  // namespace kiln
