#include <fmt/format.h>

#include <algorithm>

#include "vm-worker/interp/machine.h"

namespace kiln {
namespace {

std::string InputText(const Function& function, size_t index) {
  const std::string& name = function.values[static_cast<size_t>(function.regions[0].inputs[index])].name;
  return name.empty() ? fmt::format("input {}", index) : fmt::format("input \"{}\"", name);
}

Status CheckSymbol(const SymbolTable& symbols, SymbolId id, int64_t value) {
  const Symbol& symbol = symbols.symbol(id);
  if (value < symbol.range.min)
    return Fail(ErrorCode::kShapeMismatch,
                fmt::format("is {}; {} is at least {}", value, symbol.name, symbol.range.min));
  if (value > symbol.range.max)
    return Fail(ErrorCode::kShapeMismatch,
                fmt::format("is {}; {} is at most {}", value, symbol.name, symbol.range.max));
  if (value % symbol.divisor != 0)
    return Fail(ErrorCode::kShapeMismatch,
                fmt::format("is {}; {} is a multiple of {}", value, symbol.name, symbol.divisor));
  return {};
}

// Type, rank and plausibility of one input; binds the symbols that it shows first.
Status BindInput(const Program& program, size_t index, const TensorRef& input, std::span<int64_t> frame) {
  const Function& function = program.entry();
  const TensorDesc& desc = function.values[static_cast<size_t>(function.regions[0].inputs[index])].desc;
  if (input.dtype != desc.dtype)
    return Fail(ErrorCode::kShapeMismatch, fmt::format("{} is {}; {} is needed", InputText(function, index),
                                                       DTypeName(input.dtype), DTypeName(desc.dtype)));
  if (auto elements = CheckedElements(input.dims, input.dtype); !elements)
    return FailIn(InputText(function, index), elements.error());
  if (!input.data && input.elements() > 0)
    return Fail(ErrorCode::kInvalidArgument, InputText(function, index) + " has no data");
  if (!desc.has_rank()) return {};
  if (input.rank() != desc.rank())
    return Fail(ErrorCode::kShapeMismatch,
                fmt::format("{} has rank {} ({}); {} is needed", InputText(function, index), input.rank(),
                            input.dims.ToString(), ToString(desc, program.symbols)));
  for (int i = 0; i < input.rank(); ++i) {
    const Dim dim = (*desc.dims)[static_cast<size_t>(i)];
    if (dim.kind() != Dim::Kind::kSymbol || frame[static_cast<size_t>(dim.symbol())] >= 0) continue;
    if (Status status = CheckSymbol(program.symbols, dim.symbol(), input.dims[i]); !status)
      return Fail(ErrorCode::kShapeMismatch,
                  fmt::format("dim {} of {} {}", i, InputText(function, index), status.error().message));
    frame[static_cast<size_t>(dim.symbol())] = input.dims[i];
  }
  return {};
}

Status CheckDims(const Program& program, size_t index, const TensorRef& input, std::span<const int64_t> frame) {
  const Function& function = program.entry();
  const TensorDesc& desc = function.values[static_cast<size_t>(function.regions[0].inputs[index])].desc;
  if (!desc.has_rank()) return {};
  for (int i = 0; i < input.rank(); ++i) {
    const Dim dim = (*desc.dims)[static_cast<size_t>(i)];
    ASSIGN_OR_RETURN(const std::optional<int64_t> wanted, EvaluateInFrame(program.symbols, dim, frame));
    if (wanted && *wanted != input.dims[i])
      return Fail(
          ErrorCode::kShapeMismatch,
          dim.is_const()
              ? fmt::format("dim {} of {} is {}; {} is needed", i, InputText(function, index), input.dims[i], *wanted)
              : fmt::format("dim {} of {} is {}; {} is {} by an earlier input", i, InputText(function, index),
                            input.dims[i], program.symbols.ToString(dim), *wanted));
  }
  return {};
}

// "n is 4, dim 0 of input "x"" for every symbol of the constraint.
std::string ValuesText(const Program& program, const Constraint& constraint, std::span<const int64_t> frame) {
  const Function& function = program.entry();
  const auto place = [&](Dim symbol) -> std::string {
    for (size_t index = 0; index < function.regions[0].inputs.size(); ++index) {
      const TensorDesc& desc = function.values[static_cast<size_t>(function.regions[0].inputs[index])].desc;
      if (!desc.has_rank()) continue;
      const auto found = std::ranges::find(*desc.dims, symbol);
      if (found != desc.dims->end())
        return fmt::format(", dim {} of {}", found - desc.dims->begin(), InputText(function, index));
    }
    return "";
  };
  std::vector<SymbolId> symbols = program.symbols.SymbolsOf(constraint.left);
  for (const SymbolId id : program.symbols.SymbolsOf(constraint.right))
    if (std::ranges::find(symbols, id) == symbols.end()) symbols.push_back(id);
  std::string text;
  for (const SymbolId id : symbols)
    text += fmt::format("{}{} is {}{}", text.empty() ? "" : "; ", program.symbols.SymbolText(id),
                        frame[static_cast<size_t>(id)], place(program.symbols.SymbolDim(id)));
  return text;
}

}  // namespace

Status CheckConstraint(const Program& program, const Constraint& constraint, std::span<const int64_t> frame) {
  const SymbolTable& symbols = program.symbols;
  const auto left = EvaluateInFrame(symbols, constraint.left, frame);
  const auto right = EvaluateInFrame(symbols, constraint.right, frame);
  for (const auto* side : {&left, &right}) {
    if (!side->has_value())
      return Fail(side->error().code, fmt::format("constraint {}: {} ({})", symbols.ToString(constraint),
                                                  side->error().message, ValuesText(program, constraint, frame)));
  }
  if (!*left || !*right) return {};  // a symbol that no input shows
  if (Holds(constraint.kind, **left, **right)) return {};
  return Fail(ErrorCode::kShapeMismatch, fmt::format("constraint {} does not hold: {}", symbols.ToString(constraint),
                                                     ValuesText(program, constraint, frame)));
}

Status BindInputs(const Program& program, std::span<const TensorRef> inputs, std::span<const int64_t> given,
                  std::span<int64_t> frame) {
  std::ranges::fill(frame, -1);
  std::copy_n(given.begin(), std::min(given.size(), frame.size()), frame.begin());
  const size_t wanted = program.entry().regions[0].inputs.size();
  if (inputs.size() != wanted)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} inputs were given; the program takes {}", inputs.size(), wanted));
  for (size_t i = 0; i < inputs.size(); ++i) RETURN_IF_ERROR(BindInput(program, i, inputs[i], frame));
  for (size_t i = 0; i < inputs.size(); ++i) RETURN_IF_ERROR(CheckDims(program, i, inputs[i], frame));
  for (const Constraint& constraint : program.symbols.constraints())
    RETURN_IF_ERROR(CheckConstraint(program, constraint, frame));
  return {};
}

}  // namespace kiln
