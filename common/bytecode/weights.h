// Where the bytes of a program's weights lie when they are not part of its encoded form: a mapped model or cache file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/tensor/tensor.h"

namespace kiln {

// Read side. Implementations are used from one thread at a time.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // `length` bytes at `offset`; the buffer keeps alive what it points into. OutOfRange if they are not all there.
  virtual Result<std::shared_ptr<Buffer>> Fetch(uint64_t offset, uint64_t length) = 0;
};

// Weights in memory or in a mapped file.
class BufferWeights : public WeightSource {
 public:
  explicit BufferWeights(std::shared_ptr<Buffer> bytes) : bytes_(std::move(bytes)) {}
  Result<std::shared_ptr<Buffer>> Fetch(uint64_t offset, uint64_t length) override;

 private:
  std::shared_ptr<Buffer> bytes_;
};

// Write side: the offset of a constant's bytes in the external file, or nullopt to keep them inline.
using WeightPlacement = std::function<std::optional<uint64_t>(int32_t constant)>;

// The tensor over fetched bytes; copies where the element type needs a stricter alignment than the place has.
Result<Tensor> FetchWeight(WeightSource* source, DType dtype, const Dims& dims, uint64_t offset);

}  // namespace kiln
