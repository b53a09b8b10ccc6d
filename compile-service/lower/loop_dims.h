// Loop dims with the strides of every operand, and their collapsing.
#pragma once

#include <vector>

#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

struct LoopDim {
  Dim extent;
  std::vector<Dim> strides;  // per operand
};

// Dim `dim` of the iteration space.
inline LoopDim LoopDimOf(Dim extent, const std::vector<Operand>& operands, size_t dim) {
  LoopDim loop{extent, {}};
  for (const Operand& operand : operands) loop.strides.push_back(operand.strides[dim]);
  return loop;
}

// Whether stepping `outer` by one equals stepping `inner` through its extent, for every operand.
inline bool CanCollapse(SymbolTable& symbols, const LoopDim& outer, const LoopDim& inner) {
  for (size_t a = 0; a < outer.strides.size(); ++a) {
    if (!symbols.ProvenEqual(outer.strides[a], symbols.Mul(inner.strides[a], inner.extent))) return false;
  }
  return true;
}

// Merges neighbours that can be, innermost first.
inline void Collapse(SymbolTable& symbols, std::vector<LoopDim>* dims) {
  for (size_t i = dims->size(); i-- > 1;) {
    LoopDim& outer = (*dims)[i - 1];
    LoopDim& inner = (*dims)[i];
    if (!CanCollapse(symbols, outer, inner)) continue;
    outer = {symbols.Mul(outer.extent, inner.extent), inner.strides};
    dims->erase(dims->begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace kiln::lower
