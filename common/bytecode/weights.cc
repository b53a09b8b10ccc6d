#include "common/bytecode/weights.h"

#include <cstring>

namespace kiln {

Result<std::shared_ptr<Buffer>> BufferWeights::Fetch(uint64_t offset, uint64_t length) {
  const uint64_t size = bytes_->size();
  if (offset > size || length > size - offset) {
    return Fail(ErrorCode::kOutOfRange, "weight bytes " + std::to_string(offset) + " + " + std::to_string(length) +
                                            " lie outside the " + std::to_string(size) + " bytes of the weight file");
  }
  return Buffer::Wrap(static_cast<uint8_t*>(bytes_->data()) + offset, length, bytes_);
}

Result<Tensor> FetchWeight(WeightSource* source, DType dtype, const Dims& dims, uint64_t offset) {
  ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(dims, dtype));
  if (source == nullptr) {
    return Fail(ErrorCode::kInvalidArgument, "it lies in a weight file, but none is given");
  }
  ASSIGN_OR_RETURN(auto buffer, source->Fetch(offset, static_cast<uint64_t>(elements * DTypeBytes(dtype))));
  if (reinterpret_cast<uintptr_t>(buffer->data()) % static_cast<uintptr_t>(DTypeBytes(dtype)) != 0) {
    auto copy = Buffer::Allocate(buffer->size());
    if (buffer->size() > 0) std::memcpy(copy->data(), buffer->data(), buffer->size());
    buffer = std::move(copy);
  }
  const TensorRef ref = MakeRef(dtype, dims, buffer->data());
  return Tensor{ref, std::move(buffer)};
}

}  // namespace kiln
