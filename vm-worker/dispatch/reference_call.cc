#include "vm-worker/dispatch/reference_call.h"

#include <algorithm>

#include "common/ops/empty_call.h"
#include "vm-worker/dispatch/step_shapes.h"

namespace kiln {

Result<ReferenceCall> MakeReferenceCall(const LinkedPlan& linked, size_t step, std::span<const int64_t> symbol_values,
                                        std::span<TensorRef> values) {
  const Plan& plan = linked.plan();
  const auto& node = std::get<ReferenceStep>(plan.steps[step].step);
  ReferenceCall call;
  call.plan_step = static_cast<int32_t>(step);
  std::vector<const TensorRef*> inputs, outputs;
  const auto add = [&](int32_t value, std::vector<TensorRef>& views, std::vector<const TensorRef*>& pointers) {
    pointers.push_back(value < 0 ? nullptr : &values[static_cast<size_t>(value)]);
    views.push_back(value < 0 ? TensorRef{} : values[static_cast<size_t>(value)]);
  };
  for (int32_t input : node.inputs) add(input, call.inputs, inputs);
  for (int32_t output : node.outputs) add(output, call.outputs, outputs);
  for (Dim dim : node.attributes.Dims("dims")) {
    ASSIGN_OR_RETURN(int64_t extent, plan.symbols.Evaluate(dim, symbol_values));
    call.shape.push_back(extent);
  }
  if (node.op == TensorOp::kShapeVector) {
    const TensorRef& to = call.outputs[0];
    if (node.outputs[0] < 0 || to.dtype != DType::kI64 || !to.IsContiguous() ||
        to.elements() != static_cast<int64_t>(call.shape.size()))
      return Fail(ErrorCode::kIntegrityFailure, "plan step " + std::to_string(step) + " writes " +
                                                    std::to_string(call.shape.size()) + " dims to " +
                                                    to.dims.ToString() + "; the plan is not used");
    values[static_cast<size_t>(node.outputs[0])].data = call.shape.data();  // stays when the call is moved
  } else {
    RETURN_IF_ERROR(CheckStepShapes(node, inputs, outputs));
  }
  const ReferenceKernel& kernel = linked.reference(step).kernel;
  const auto is_strided = [](const TensorRef& input) { return !input.IsContiguous(); };
  if (kernel.run != nullptr && !kernel.strided_inputs && std::ranges::any_of(call.inputs, is_strided)) {
    call.dense = call.inputs;
    for (TensorRef& input : call.dense) input.strides = ContiguousStrides(input.dims);
  }
  return call;
}

Status RunReference(const LinkedPlan& linked, ReferenceCall& call, void* const* pointers, KernelMemory& memory) {
  const auto& node = std::get<ReferenceStep>(linked.plan().steps[static_cast<size_t>(call.plan_step)].step);
  for (TensorRef& input : call.inputs) input.data = *pointers++;
  for (TensorRef& output : call.outputs) output.data = *pointers++;
  if (node.op == TensorOp::kShapeVector) {
    std::copy(call.shape.begin(), call.shape.end(), call.outputs[0].as<int64_t>());
    return {};
  }
  for (size_t i = 0; i < call.dense.size(); ++i) {
    const TensorRef& input = call.inputs[i];
    TensorRef& dense = call.dense[i];
    dense.data = input.data;
    if (input.data == nullptr || input.IsContiguous()) continue;
    dense.data = memory.AllocateScratch(static_cast<size_t>(input.bytes()));
    if (dense.data == nullptr)
      return Fail(ErrorCode::kResourceExhausted, "no memory for a contiguous copy of an operand");
    CopyElements(input, dense);
  }
  KernelCall kernel_call{node.op,      &node.attributes, {},     call.dense.empty() ? call.inputs : call.dense,
                         call.outputs, &memory,          nullptr};
  if (OpInfo(node.op).family == OpFamily::kView) {
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      ASSIGN_OR_RETURN(std::optional<TensorRef> view, MakeView(kernel_call, static_cast<int>(i), call.outputs[i].dims));
      if (!view) return Fail(ErrorCode::kInternal, "view step without a view");
      CopyElements(*view, call.outputs[i]);
    }
    return {};
  }
  const LinkedPlan::Reference& reference = linked.reference(static_cast<size_t>(call.plan_step));
  kernel_call.prepared = reference.prepared.get();
  Status status = IsEmptyCall(kernel_call) ? Status() : reference.kernel.run(kernel_call);
  if (!status.has_value()) return FailIn(OpInfo(node.op).name, status.error());
  return {};
}

}  // namespace kiln
