#include <fmt/format.h>

#include <algorithm>

#include "common/bytecode/entry_inputs.h"
#include "vm-worker/interp/machine.h"

namespace kiln {
namespace {

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
  RETURN_IF_ERROR(CheckDeclared(program, index, input));
  if (auto elements = CheckedElements(input.dims, input.dtype); !elements)
    return FailIn(InputText(program, index), elements.error());
  if (!input.data && input.elements() > 0)
    return Fail(ErrorCode::kInvalidArgument, InputText(program, index) + " has no data");
  const Function& function = program.entry();
  const TensorDesc& desc = function.values[static_cast<size_t>(function.regions[0].inputs[index])].desc;
  if (!desc.has_rank()) return {};
  for (int i = 0; i < input.rank(); ++i) {
    const Dim dim = (*desc.dims)[static_cast<size_t>(i)];
    if (dim.kind() != Dim::Kind::kSymbol || frame[static_cast<size_t>(dim.symbol())] >= 0) continue;
    if (Status status = CheckSymbol(program.symbols, dim.symbol(), input.dims[i]); !status)
      return Fail(ErrorCode::kShapeMismatch,
                  fmt::format("dim {} of {} {}", i, InputText(program, index), status.error().message));
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
    if (dim.is_const()) continue;
    ASSIGN_OR_RETURN(const std::optional<int64_t> wanted, EvaluateInFrame(program.symbols, dim, frame));
    if (wanted && *wanted != input.dims[i])
      return Fail(ErrorCode::kShapeMismatch,
                  fmt::format("dim {} of {} is {}; {} is {} by an earlier input", i, InputText(program, index),
                              input.dims[i], program.symbols.ToString(dim), *wanted));
  }
  return {};
}

}  // namespace

Status CheckConstraint(const Program& program, const Constraint& constraint, std::span<const int64_t> frame) {
  const SymbolTable& symbols = program.symbols;
  const auto left = EvaluateInFrame(symbols, constraint.left, frame);
  const auto right = EvaluateInFrame(symbols, constraint.right, frame);
  for (const auto* side : {&left, &right}) {
    if (!side->has_value())
      return Fail(side->error().code,
                  fmt::format("constraint {}: {} ({})", symbols.ToString(constraint), side->error().message,
                              ValuesText(program, symbols, constraint, frame)));
  }
  if (!*left || !*right) return {};  // a symbol that no input shows
  if (Holds(constraint.kind, **left, **right)) return {};
  return Fail(ErrorCode::kShapeMismatch, fmt::format("constraint {} does not hold: {}", symbols.ToString(constraint),
                                                     ValuesText(program, symbols, constraint, frame)));
}

Status BindInputs(const LoadedProgram& loaded, std::span<const TensorRef> inputs, std::span<const int64_t> given,
                  std::span<int64_t> frame) {
  const Program& program = loaded.program();
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
  return CheckEntryRequirements(program, loaded.entry_requirements(), frame);
}

}  // namespace kiln
