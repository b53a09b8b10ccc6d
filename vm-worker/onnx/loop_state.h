// What holds of values on both sides of a region's border.
#pragma once

#include <cstddef>
#include <vector>

#include "common/base/result.h"
#include "common/shape/symbol_table.h"
#include "common/shape/tensor_desc.h"

namespace kiln::onnx {

// Symbols made inside a region, those from `outer_symbols` on, mean nothing outside it.
bool VisibleOutside(const SymbolTable& symbols, Dim dim, size_t outer_symbols);
// The desc with a fresh symbol for each dim that is not visible.
TensorDesc SeenFromOutside(SymbolTable& symbols, TensorDesc desc, size_t outer_symbols);

// The state of a loop as its body sees it. `open` marks dims (and whole ranks) that change from trip to trip.
struct StateShape {
  TensorDesc desc;
  bool rank_open = false;
  std::vector<bool> open;

  explicit StateShape(TensorDesc initial);
  // Opens what `next`, the body's output, does not keep. Returns whether anything was opened.
  Result<bool> Widen(const SymbolTable& symbols, const TensorDesc& next, size_t outer_symbols);
  TensorDesc Now(SymbolTable& symbols) const;
};

}  // namespace kiln::onnx
