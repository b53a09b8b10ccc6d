// Small operands (axes, pads, scales, indices of views) as lists: elements of a tensor of any numeric dtype and
// strides, row-major.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ops/list.h"
#include "common/tensor/tensor.h"

namespace kiln::kernels {

// Lists of a call, and those for who keeps them.
List<int64_t> IntsOf(const TensorRef& ref);
List<double> FloatsOf(const TensorRef& ref);
std::vector<int64_t> ReadInts(const TensorRef& ref);
std::vector<double> ReadFloats(const TensorRef& ref);

}  // namespace kiln::kernels
