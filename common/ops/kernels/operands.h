// Small operands of a call (axes, pads, scales) as lists of the call; ReadInts and ReadFloats are for who keeps them.
#pragma once

#include "common/ops/list.h"
#include "common/tensor/tensor.h"

namespace kiln::kernels {

// Elements of a tensor of any numeric dtype and strides, row-major.
List<int64_t> IntsOf(const TensorRef& ref);
List<double> FloatsOf(const TensorRef& ref);

}  // namespace kiln::kernels
