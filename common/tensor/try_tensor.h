// Tensors of sizes that a caller chose: no memory is an Error.
#pragma once

#include "common/tensor/tensor.h"

namespace kiln {

// As the functions of tensor.h; ResourceExhausted names the bytes that could not be had. Precondition: dims were
// checked with CheckedElements.
Result<Tensor> TryAllocate(DType dtype, const Dims& dims);
Result<Tensor> TryZeros(DType dtype, const Dims& dims);
Result<Tensor> TryMakeContiguous(const TensorRef& from);

}  // namespace kiln
