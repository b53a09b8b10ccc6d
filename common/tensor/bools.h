// Bools that come from outside.
#pragma once

#include "common/tensor/tensor.h"

namespace kiln {

// Makes every byte of a contiguous bool tensor 0 or 1 (any other is undefined behaviour for whoever reads it); leaves a
// tensor of another type as it is.
inline void NormaliseBools(Tensor& tensor) {
  if (tensor.dtype() != DType::kBool) return;
  uint8_t* bytes = tensor.ref.as<uint8_t>();
  for (int64_t i = 0; i < tensor.ref.elements(); ++i) bytes[i] = bytes[i] != 0;
}

}  // namespace kiln
