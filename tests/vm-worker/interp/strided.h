// Test support: the same elements behind other strides.
#pragma once

#include <vector>

#include "common/tensor/tensor.h"

namespace kiln {

// A view with gaps between elements, shifted off alignment, its first dim reversed where it has one. `tensor` owns the
// memory.
inline TensorRef Spread(const TensorRef& from, Tensor* tensor) {
  Dims dims = from.dims;
  dims.rank() < limits::kRankMax ? dims.push_back(2) : void();
  const bool wide = dims.rank() > from.rank();
  *tensor = Tensor::Zeros(from.dtype, wide ? dims : from.dims);
  TensorRef view = tensor->ref;
  if (!wide) {
    CopyElements(from, view);
    return view;
  }
  view.dims = from.dims;
  view.strides = Dims();
  for (int i = 0; i < from.rank(); ++i) view.strides.push_back(tensor->ref.strides[i]);
  view.data = tensor->ref.as<char>() + DTypeBytes(from.dtype) * (from.elements() > 0 ? 1 : 0);
  if (from.rank() > 0 && from.elements() > 0) {
    view.data = static_cast<char*>(view.data) + (from.dims[0] - 1) * view.strides[0] * DTypeBytes(from.dtype);
    view.strides[0] = -view.strides[0];
  }
  CopyElements(from, view);
  return view;
}

}  // namespace kiln
