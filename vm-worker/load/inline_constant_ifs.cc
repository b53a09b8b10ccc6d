#include <cstring>

#include "vm-worker/load/passes.h"
#include "vm-worker/load/replace_values.h"

namespace kiln {
namespace {

class Inliner {
 public:
  Inliner(const Program& program, Function& function)
      : program_(program),
        function_(function),
        replacements_(function.values.size()),
        constant_of_(function.values.size(), -1) {}

  bool Run() {
    InlineIn(0);
    if (changed_) replacements_.ApplyTo(function_);
    return changed_;
  }

 private:
  void InlineIn(RegionId id) {
    std::vector<Node> nodes;
    nodes.swap(function_.regions[static_cast<size_t>(id)].nodes);
    std::vector<Node> kept;
    for (Node& node : nodes) {
      for (RegionId inner : node.regions) InlineIn(inner);
      if (node.op == TensorOp::kConstant)
        constant_of_[static_cast<size_t>(node.outputs[0])] = node.attributes.Constant("value");
      const std::optional<bool> condition = node.op == TensorOp::kIf ? ConditionOf(node) : std::nullopt;
      if (!condition) {
        kept.push_back(std::move(node));
        continue;
      }
      Region& taken = function_.regions[static_cast<size_t>(node.regions[*condition ? 0 : 1])];
      for (Node& inner : taken.nodes) kept.push_back(std::move(inner));
      taken.nodes.clear();
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] != kNoValue) Pass(taken.outputs[i], node.outputs[i], kept);
      }
      changed_ = true;
    }
    function_.regions[static_cast<size_t>(id)].nodes = std::move(kept);
  }

  // An Identity keeps the output's name; RemoveIdentities decides whether it is needed.
  void Pass(ValueId from, ValueId to, std::vector<Node>& kept) {
    TensorDesc& desc = function_.values[static_cast<size_t>(to)].desc;
    desc.dims = function_.values[static_cast<size_t>(from)].desc.dims;
    kept.push_back(Node{.op = TensorOp::kIdentity,
                        .name = function_.values[static_cast<size_t>(to)].name,
                        .inputs = {from},
                        .outputs = {to}});
  }

  std::optional<bool> ConditionOf(const Node& node) const {
    const ConstantId id = node.inputs[0] == kNoValue ? -1 : constant_of_[static_cast<size_t>(node.inputs[0])];
    if (id < 0) return std::nullopt;
    const Tensor& tensor = program_.constants[static_cast<size_t>(id)].tensor;
    if (tensor.dtype() != DType::kBool || tensor.ref.elements() != 1) return std::nullopt;
    return tensor.values<bool>()[0];
  }

  const Program& program_;
  Function& function_;
  ValueReplacements replacements_;
  std::vector<ConstantId> constant_of_;
  bool changed_ = false;
};

}  // namespace

Result<bool> InlineConstantIfs(Program& program) {
  bool changed = false;
  for (Function& function : program.functions) changed |= Inliner(program, function).Run();
  return changed;
}

}  // namespace kiln
