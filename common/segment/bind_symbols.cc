#include <fmt/format.h>

#include "common/segment/segment.h"

namespace kiln {
namespace {

std::string InputText(size_t index) {
  return fmt::format("segment input {}", index);
}

Status CheckFacts(const SymbolTable& symbols, size_t id, int64_t value) {
  const Symbol& symbol = symbols.symbol(static_cast<SymbolId>(id));
  if (value < symbol.range.min || value > symbol.range.max)
    return Fail(ErrorCode::kShapeMismatch, fmt::format("symbol {} is {}; {}..{} is allowed", symbol.name, value,
                                                       symbol.range.min, symbol.range.max));
  if (value % symbol.divisor != 0)
    return Fail(ErrorCode::kShapeMismatch,
                fmt::format("symbol {} is {}; multiples of {} are allowed", symbol.name, value, symbol.divisor));
  return {};
}

// Every dim of every input against its description; `values` holds the symbols that are known so far.
Status CheckInput(const Segment& segment, size_t index, const TensorRef& input, std::span<const int64_t> values) {
  const TensorDesc& desc = segment.input(static_cast<int>(index));
  for (int i = 0; i < input.rank(); ++i) {
    const Dim dim = (*desc.dims)[static_cast<size_t>(i)];
    int64_t wanted = dim.value();
    if (!dim.is_const()) {
      ASSIGN_OR_RETURN(wanted, segment.body.symbols.Evaluate(dim, values));
    }
    if (wanted != input.dims[i])
      return Fail(ErrorCode::kShapeMismatch, fmt::format("dim {} of {} is {}; {} is {}", i, InputText(index),
                                                         input.dims[i], segment.body.symbols.ToString(dim), wanted));
  }
  return {};
}

bool AllBound(const SymbolTable& symbols, Dim dim, std::span<const int64_t> values) {
  if (dim.is_const()) return true;
  for (SymbolId id : symbols.SymbolsOf(dim))
    if (values[static_cast<size_t>(id)] < 0) return false;
  return true;
}

Status CheckConstraint(const SymbolTable& symbols, const Constraint& constraint, std::span<const int64_t> values) {
  if (!AllBound(symbols, constraint.left, values) || !AllBound(symbols, constraint.right, values)) return {};
  ASSIGN_OR_RETURN(const int64_t left, symbols.Evaluate(constraint.left, values));
  ASSIGN_OR_RETURN(const int64_t right, symbols.Evaluate(constraint.right, values));
  if (Holds(constraint.kind, left, right)) return {};
  return Fail(ErrorCode::kShapeMismatch,
              fmt::format("constraint {} does not hold for {} and {}", symbols.ToString(constraint), left, right));
}

}  // namespace

Status BindSymbols(const Segment& segment, std::span<const TensorRef> inputs, std::span<const int64_t> parameters,
                   std::span<int64_t> values) {
  const SymbolTable& symbols = segment.body.symbols;
  if (inputs.size() != static_cast<size_t>(segment.runtime_inputs) ||
      parameters.size() != static_cast<size_t>(segment.parameters) || values.size() != symbols.symbol_count())
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("segment takes {} inputs and {} parameters; {} and {} were given", segment.runtime_inputs,
                            segment.parameters, inputs.size(), parameters.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorDesc& desc = segment.input(static_cast<int>(i));
    if (inputs[i].dtype != desc.dtype || inputs[i].rank() != desc.rank())
      return Fail(ErrorCode::kShapeMismatch,
                  fmt::format("{} is {}{}; {} is needed", InputText(i), DTypeName(inputs[i].dtype),
                              inputs[i].dims.ToString(), ToString(desc, symbols)));
  }
  for (size_t s = 0; s < segment.symbols.size(); ++s) {
    const SymbolSource& source = segment.symbols[s];
    switch (source.kind) {
      case SymbolSource::Kind::kInputDim:
        values[s] = inputs[static_cast<size_t>(source.index)].dims[source.dim];
        break;
      case SymbolSource::Kind::kParameter:
        values[s] = parameters[static_cast<size_t>(source.index)];
        break;
      case SymbolSource::Kind::kValueDim:
        values[s] = -1;
        continue;
    }
    if (Status status = CheckFacts(symbols, s, values[s]); !status) {
      if (source.kind != SymbolSource::Kind::kInputDim) return status;
      return FailIn(fmt::format("dim {} of {}", source.dim, InputText(static_cast<size_t>(source.index))),
                    status.error());
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) RETURN_IF_ERROR(CheckInput(segment, i, inputs[i], values));
  for (const Constraint& constraint : symbols.constraints())
    RETURN_IF_ERROR(CheckConstraint(symbols, constraint, values));
  return {};
}

}  // namespace kiln
