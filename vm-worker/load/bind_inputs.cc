#include "vm-worker/load/bind_inputs.h"

#include <optional>
#include <unordered_map>

namespace kiln {
namespace {

std::string What(const Value& input) {
  return "input '" + input.name + "'";
}

Result<TensorRef> Fit(const Value& input, TensorRef tensor, const SymbolTable& symbols) {
  if (tensor.dtype != input.desc.dtype) {
    return Fail(ErrorCode::kShapeMismatch, What(input) + " is " + std::string(DTypeName(tensor.dtype)) +
                                               "; the program takes " + ToString(input.desc, symbols));
  }
  if (!input.desc.has_rank()) return tensor;
  tensor = AsDeclared(tensor, input.desc.rank() == 0);
  if (tensor.rank() != input.desc.rank()) {
    return Fail(ErrorCode::kShapeMismatch, What(input) + " has shape " + tensor.dims.ToString() +
                                               "; the program takes " + ToString(input.desc, symbols));
  }
  for (int i = 0; i < tensor.rank(); ++i) {
    const Dim dim = (*input.desc.dims)[static_cast<size_t>(i)];
    if (dim.is_const() && dim.value() != tensor.dims[i]) {
      return Fail(ErrorCode::kShapeMismatch, "dim " + std::to_string(i) + " of " + What(input) + " is " +
                                                 std::to_string(tensor.dims[i]) + "; the program takes " +
                                                 ToString(input.desc, symbols));
    }
  }
  return tensor;
}

}  // namespace

TensorRef AsDeclared(TensorRef tensor, bool declared_scalar) {
  if (!declared_scalar || tensor.dims != Dims{1}) return tensor;
  tensor.dims = Dims{};
  tensor.strides = Dims{};
  return tensor;
}

Result<std::vector<TensorRef>> BindInputs(const Program& program, std::span<const NamedInput> given) {
  const Function& entry = program.entry();
  const std::vector<ValueId>& inputs = entry.regions[0].inputs;
  const auto input = [&](size_t i) -> const Value& { return entry.values[static_cast<size_t>(inputs[i])]; };
  if (given.size() > inputs.size()) {
    return Fail(ErrorCode::kInvalidArgument, std::to_string(given.size()) + " inputs were given; the program takes " +
                                                 std::to_string(inputs.size()));
  }
  std::unordered_map<std::string, size_t> position;
  for (size_t i = 0; i < inputs.size(); ++i) position.emplace(input(i).name, i);
  bool by_name = true;
  for (const NamedInput& tensor : given) by_name = by_name && position.contains(tensor.name);

  std::vector<std::optional<TensorRef>> bound(inputs.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const size_t at = by_name ? position.at(given[i].name) : i;
    if (bound[at]) return Fail(ErrorCode::kInvalidArgument, What(input(at)) + " was given twice");
    ASSIGN_OR_RETURN(bound[at], Fit(input(at), given[i].tensor, program.symbols));
  }
  std::vector<TensorRef> result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!bound[i]) return Fail(ErrorCode::kInvalidArgument, What(input(i)) + " is missing");
    result.push_back(*bound[i]);
  }
  return result;
}

}  // namespace kiln
