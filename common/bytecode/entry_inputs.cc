#include "common/bytecode/entry_inputs.h"

#include <fmt/format.h>

#include <algorithm>

namespace kiln {
namespace {

const Value& InputOf(const Program& program, size_t index) {
  const Function& entry = program.entry();
  return entry.values[static_cast<size_t>(entry.regions[0].inputs[index])];
}

}  // namespace

std::string InputText(const Program& program, size_t index) {
  const std::string& name = InputOf(program, index).name;
  return name.empty() ? fmt::format("input {}", index) : fmt::format("input \"{}\"", name);
}

std::string PlaceOf(const Program& program, SymbolId symbol) {
  const Dim dim = program.symbols.SymbolDim(symbol);
  for (size_t index = 0; index < program.entry().regions[0].inputs.size(); ++index) {
    const TensorDesc& desc = InputOf(program, index).desc;
    if (!desc.has_rank()) continue;
    const auto found = std::ranges::find(*desc.dims, dim);
    if (found != desc.dims->end())
      return fmt::format("dim {} of {}", found - desc.dims->begin(), InputText(program, index));
  }
  return "";
}

Status CheckDeclared(const Program& program, size_t index, const TensorRef& tensor) {
  const TensorDesc& desc = InputOf(program, index).desc;
  if (tensor.dtype != desc.dtype)
    return Fail(ErrorCode::kShapeMismatch, fmt::format("{} is {}; {} is needed", InputText(program, index),
                                                       DTypeName(tensor.dtype), DTypeName(desc.dtype)));
  if (!desc.has_rank()) return {};
  if (tensor.rank() != desc.rank())
    return Fail(ErrorCode::kShapeMismatch,
                fmt::format("{} has rank {} ({}); {} is needed", InputText(program, index), tensor.rank(),
                            tensor.dims.ToString(), ToString(desc, program.symbols)));
  for (int i = 0; i < tensor.rank(); ++i) {
    const Dim dim = (*desc.dims)[static_cast<size_t>(i)];
    if (!dim.is_const() || dim.value() == tensor.dims[i]) continue;
    return Fail(ErrorCode::kShapeMismatch, fmt::format("dim {} of {} is {}; {} is needed", i, InputText(program, index),
                                                       tensor.dims[i], dim.value()));
  }
  return {};
}

}  // namespace kiln
