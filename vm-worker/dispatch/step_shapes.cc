#include "vm-worker/dispatch/step_shapes.h"

#include "common/segment/shape_rule.h"

namespace kiln {
namespace {

std::string Named(const ReferenceStep& step) {
  return "plan step " + std::string(OpInfo(step.op).name);
}

Status Refuse(const ReferenceStep& step, size_t output, const std::string& is, const std::string& wanted) {
  return Fail(ErrorCode::kIntegrityFailure, Named(step) + " makes output " + std::to_string(output) + " " + is +
                                                "; the op gives " + wanted + ": the plan is not used");
}

// Whether `desc`, as far as its dims are constants, allows `dims`.
bool Allows(const TensorDesc& desc, const Dims& dims) {
  if (!desc.has_rank()) return true;
  if (desc.rank() != dims.rank()) return false;
  for (int d = 0; d < dims.rank(); ++d) {
    const Dim dim = (*desc.dims)[static_cast<size_t>(d)];
    if (dim.is_const() && dim.value() != dims[d]) return false;
  }
  return true;
}

}  // namespace

Status CheckStepShapes(const ReferenceStep& step, std::span<const TensorRef* const> inputs,
                       std::span<const TensorRef* const> outputs) {
  ShapeRule rule;
  if (Status status = rule.RunOnContents({step.op, step.attributes, outputs.size()}, inputs); !status.has_value())
    return FailIn(Named(step), status.error());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == nullptr) continue;
    const TensorDesc& wanted = rule.outputs()[i];
    if (wanted.dtype != outputs[i]->dtype)
      return Refuse(step, i, std::string(DTypeName(outputs[i]->dtype)), std::string(DTypeName(wanted.dtype)));
    if (!Allows(wanted, outputs[i]->dims))
      return Refuse(step, i, outputs[i]->dims.ToString(), ToString(wanted, rule.symbols()));
  }
  return {};
}

}  // namespace kiln
