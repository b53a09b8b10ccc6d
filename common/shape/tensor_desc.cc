#include "common/shape/tensor_desc.h"

#include <algorithm>

namespace kiln {

bool TensorDesc::is_static() const {
  return dims.has_value() && std::all_of(dims->begin(), dims->end(), [](Dim dim) { return dim.is_const(); });
}

TensorDesc StaticDesc(DType dtype, const Dims& dims) {
  TensorDesc desc;
  desc.dtype = dtype;
  desc.dims.emplace();
  for (int64_t dim : dims) desc.dims->push_back(Dim::Const(dim));
  return desc;
}

std::string ToString(const TensorDesc& desc, const SymbolTable& symbols) {
  std::string text(DTypeName(desc.dtype));
  if (!desc.has_rank()) return text + "[*]";
  text += "[";
  for (size_t i = 0; i < desc.dims->size(); ++i) {
    if (i > 0) text += ", ";
    text += symbols.ToString((*desc.dims)[i]);
  }
  return text + "]";
}

}  // namespace kiln
