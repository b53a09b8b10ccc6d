#include "vm-worker/load/bind_inputs.h"

#include <optional>
#include <unordered_map>

#include "common/bytecode/entry_inputs.h"

namespace kiln {

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
    if (bound[at]) return Fail(ErrorCode::kInvalidArgument, InputText(program, at) + " was given twice");
    const TensorDesc& desc = input(at).desc;
    bound[at] = AsDeclared(given[i].tensor, desc.has_rank() && desc.rank() == 0);
    RETURN_IF_ERROR(CheckDeclared(program, at, *bound[at]));
  }
  std::vector<TensorRef> result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!bound[i]) return Fail(ErrorCode::kInvalidArgument, InputText(program, i) + " is missing");
    result.push_back(*bound[i]);
  }
  return result;
}

}  // namespace kiln
