#include "tests/common/ops/typed_case.h"

namespace kiln::testing {

size_t TypedInput(TensorOp op) {
  return op == TensorOp::kWhere ? 1 : 0;
}

TypedCase InType(const FileCase& original, DType type, bool alone) {
  TypedCase typed{.op = original.op, .owned = {}};
  const size_t typed_input = TypedInput(original.op.op);
  const DType from = original.op.inputs[typed_input]->dtype;
  for (size_t i = 0; i < typed.op.inputs.size(); ++i) {
    std::optional<TensorRef>& input = typed.op.inputs[i];
    if (!input || input->dtype != from || (alone && i != typed_input)) continue;
    typed.owned.push_back(Make(type, input->dims, Values(*input)));
    input = typed.owned.back().ref;
  }
  return typed;
}

bool Runs(const TypedCase& typed) {
  const TensorRef& decides = *typed.op.inputs[TypedInput(typed.op.op)];
  const bool has_kernel =
      OpInfo(typed.op.op).family == OpFamily::kView || FindReferenceKernel(typed.op.op, decides.dtype);
  return has_kernel && RunOp(typed.op).has_value();
}

InputRole RoleOf(const TypedCase& typed, size_t input, bool weights) {
  if (!typed.op.inputs[input]) return InputRole::kAbsent;
  if (input <= TypedInput(typed.op.op)) return InputRole::kRunTime;
  const TensorRef& ref = *typed.op.inputs[input];
  const bool small = ref.elements() <= static_cast<int64_t>(limits::kImmediateElementsMax);
  if (!IsFloat(ref.dtype) && small) return InputRole::kImmediate;
  return weights ? InputRole::kWeight : InputRole::kRunTime;
}

Program OneNode(const TypedCase& typed, const std::vector<TensorDesc>& outputs, bool weights) {
  Program program;
  program.constants = typed.op.constants;
  Function function{.name = "main"};
  function.regions.resize(1);
  Region& region = function.regions[0];
  Node node{.op = typed.op.op, .attributes = typed.op.attributes};
  for (size_t i = 0; i < typed.op.inputs.size(); ++i) {
    const InputRole role = RoleOf(typed, i, weights);
    if (role == InputRole::kAbsent) {
      node.inputs.push_back(kNoValue);
      continue;
    }
    const TensorRef& ref = *typed.op.inputs[i];
    const ValueId id = static_cast<ValueId>(function.values.size());
    function.values.push_back({"", StaticDesc(ref.dtype, ref.dims)});
    node.inputs.push_back(id);
    if (role == InputRole::kRunTime) {
      region.inputs.push_back(id);
      continue;
    }
    Node constant{.op = TensorOp::kConstant, .outputs = {id}};
    constant.attributes.Set("value", static_cast<ConstantId>(program.constants.size()));
    program.constants.push_back({"", MakeContiguous(ref), role == InputRole::kImmediate});
    region.nodes.push_back(std::move(constant));
  }
  for (const TensorDesc& desc : outputs) {
    node.outputs.push_back(static_cast<ValueId>(function.values.size()));
    function.values.push_back({"", desc});
  }
  region.outputs = node.outputs;
  region.nodes.push_back(std::move(node));
  program.functions.push_back(std::move(function));
  return program;
}

}  // namespace kiln::testing
