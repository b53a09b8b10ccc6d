#include "vm-worker/interp/check_shapes.h"

#include <fmt/format.h>

#include <cstring>

namespace kiln {
namespace {

Status CheckFacts(const SymbolTable& table, SymbolId id, int64_t value) {
  const Symbol& symbol = table.symbol(id);
  if (value >= symbol.range.min && value <= symbol.range.max && value % symbol.divisor == 0) return {};
  return Fail(ErrorCode::kShapeMismatch,
              fmt::format("symbol {} would be {}; {}..{} in steps of {} is allowed", symbol.name, value,
                          symbol.range.min, symbol.range.max, symbol.divisor));
}

}  // namespace

bool LastShapes::AreFor(std::span<const TensorRef* const> inputs) const {
  if (!usable_ || inputs.size() != inputs_.size()) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& was = inputs_[i];
    if (was.present != (inputs[i] != nullptr)) return false;
    if (!was.present) continue;
    const TensorRef& is = *inputs[i];
    if (is.dtype != was.dtype || is.dims != was.dims) return false;
    if (!was.read) continue;
    if (!is.IsContiguous() || is.bytes() != static_cast<int64_t>(was.contents.size())) return false;
    if (is.bytes() > 0 && std::memcmp(is.data, was.contents.data(), was.contents.size()) != 0) return false;
  }
  return true;
}

void LastShapes::Remember(const ShapeRule& rule, std::span<const TensorRef* const> inputs,
                          const std::vector<bool>& read) {
  outputs_.clear();
  for (size_t i = 0; i < rule.outputs().size(); ++i) outputs_.push_back({rule.outputs()[i].dtype, rule.OutputDims(i)});
  usable_ = true;
  inputs_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    Input& was = inputs_[i];
    was.present = inputs[i] != nullptr;
    // More elements are not told to the rule, whatever they are.
    was.read = read[i] && inputs[i] != nullptr && inputs[i]->elements() <= limits::kShapeContentsMax;
    was.contents.clear();
    if (!was.present) continue;
    was.dtype = inputs[i]->dtype;
    was.dims = inputs[i]->dims;
    if (!was.read) continue;
    usable_ = usable_ && inputs[i]->IsContiguous();
    if (!usable_) return;
    const auto* bytes = inputs[i]->as<const uint8_t>();
    was.contents.assign(bytes, bytes + inputs[i]->bytes());
  }
}

Status CheckClaim(const Program& program, const NodePlace& place, size_t output, DType dtype, const Dims& dims) {
  const ValueId value = place.In(program).outputs[output];
  const TensorDesc& desc =
      program.functions[static_cast<size_t>(place.function)].values[static_cast<size_t>(value)].desc;
  bool agrees = desc.dtype == dtype && (!desc.has_rank() || desc.rank() == dims.rank());
  for (int i = 0; agrees && desc.has_rank() && i < dims.rank(); ++i) {
    const Dim claimed = (*desc.dims)[static_cast<size_t>(i)];
    agrees = !claimed.is_const() || claimed.value() == dims[i];
  }
  if (agrees) return {};
  return Fail(ErrorCode::kShapeMismatch, fmt::format("output {} is {}{}; the program says {}", output, DTypeName(dtype),
                                                     dims.ToString(), ToString(desc, program.symbols)));
}

Status BindShape(const Program& program, const ShapeBinding& binding, const Dims& dims, std::span<int64_t> frame) {
  const Value& value =
      program.functions[static_cast<size_t>(binding.function)].values[static_cast<size_t>(binding.value)];
  const std::vector<Dim>& wanted = *value.desc.dims;
  auto name = [&] {
    return value.name.empty() ? fmt::format("value {}", binding.value) : fmt::format("value \"{}\"", value.name);
  };
  if (wanted.size() != dims.size())
    return Fail(ErrorCode::kShapeMismatch, fmt::format("{} is {}; the program says {}", name(), dims.ToString(),
                                                       ToString(value.desc, program.symbols)));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const int64_t actual = dims[static_cast<int>(i)];
    if (i < binding.defines.size() && binding.defines[i]) {
      const SymbolId id = wanted[i].symbol();
      if (Status status = CheckFacts(program.symbols, id, actual); !status)
        return FailIn(fmt::format("dim {} of {}", i, name()), status.error());
      frame[static_cast<size_t>(id)] = actual;
      continue;
    }
    if (i < binding.unbound.size() && binding.unbound[i]) continue;
    ASSIGN_OR_RETURN(const std::optional<int64_t> expected, EvaluateInFrame(program.symbols, wanted[i], frame));
    if (expected && *expected != actual)
      return Fail(ErrorCode::kShapeMismatch, fmt::format("dim {} of {} is {}; {} is {} here", i, name(), actual,
                                                         program.symbols.ToString(wanted[i]), *expected));
  }
  for (const uint32_t constraint : binding.constraints) {
    Status status = CheckConstraint(program, program.symbols.constraints()[constraint], frame);
    if (!status) return FailIn(name(), status.error());
  }
  return {};
}

}  // namespace kiln
