#include "vm-worker/onnx/loop_state.h"

#include <string>

namespace kiln::onnx {

bool VisibleOutside(const SymbolTable& symbols, Dim dim, size_t outer_symbols) {
  if (dim.is_const()) return true;
  if (symbols.IsTooLarge(dim)) return false;
  const std::vector<SymbolId> used = symbols.SymbolsOf(dim);
  return used.empty() || static_cast<size_t>(used.back()) < outer_symbols;
}

TensorDesc SeenFromOutside(SymbolTable& symbols, TensorDesc desc, size_t outer_symbols) {
  if (!desc.dims) return desc;
  for (Dim& dim : *desc.dims) {
    if (!VisibleOutside(symbols, dim, outer_symbols)) dim = symbols.FreshSymbol();
  }
  return desc;
}

StateShape::StateShape(TensorDesc initial) : desc(std::move(initial)) {
  desc.alignment = AlignmentClass::k64;
  rank_open = !desc.has_rank();
  if (desc.has_rank()) open.resize(desc.dims->size(), false);
}

Result<bool> StateShape::Widen(const SymbolTable& symbols, const TensorDesc& next, size_t outer_symbols) {
  if (next.dtype != desc.dtype) {
    return Fail(ErrorCode::kShapeMismatch, "a loop state begins as " + std::string(DTypeName(desc.dtype)) +
                                               " and its body gives " + std::string(DTypeName(next.dtype)));
  }
  if (rank_open) return false;
  if (!next.has_rank() || next.rank() != desc.rank()) {
    rank_open = true;
    desc.dims.reset();
    return true;
  }
  bool opened = false;
  for (size_t i = 0; i < open.size(); ++i) {
    const bool kept = (*next.dims)[i] == (*desc.dims)[i] && VisibleOutside(symbols, (*next.dims)[i], outer_symbols);
    if (open[i] || kept) continue;
    open[i] = opened = true;
  }
  return opened;
}

TensorDesc StateShape::Now(SymbolTable& symbols) const {
  TensorDesc now = desc;
  for (size_t i = 0; now.dims && i < open.size(); ++i) {
    if (open[i]) (*now.dims)[i] = symbols.FreshSymbol();
  }
  return now;
}

}  // namespace kiln::onnx
