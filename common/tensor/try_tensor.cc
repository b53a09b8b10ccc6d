#include "common/tensor/try_tensor.h"

#include <cstring>
#include <new>

namespace kiln {

Result<Tensor> TryAllocate(DType dtype, const Dims& dims) {
  try {
    return Tensor::Allocate(dtype, dims);
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kResourceExhausted, "no memory for a tensor of " +
                                                   std::to_string(NumElements(dims) * DTypeBytes(dtype)) + " bytes (" +
                                                   std::string(DTypeName(dtype)) + dims.ToString() + ")");
  }
}

Result<Tensor> TryZeros(DType dtype, const Dims& dims) {
  ASSIGN_OR_RETURN(Tensor tensor, TryAllocate(dtype, dims));
  std::memset(tensor.buffer->data(), 0, tensor.buffer->size());
  return tensor;
}

Result<Tensor> TryMakeContiguous(const TensorRef& from) {
  ASSIGN_OR_RETURN(Tensor copy, TryAllocate(from.dtype, from.dims));
  CopyElements(from, copy.ref);
  return copy;
}

}  // namespace kiln
