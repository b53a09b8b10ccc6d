#include "common/artifact/plan.h"
#include "common/artifact/target.h"

namespace kiln {
namespace {

std::string At(size_t step) {
  return "plan step " + std::to_string(step);
}

Status CheckIndex(int64_t index, size_t size, const std::string& what) {
  if (index < 0 || static_cast<size_t>(index) >= size)
    return Fail(ErrorCode::kMalformed,
                what + " " + std::to_string(index) + " does not exist; there are " + std::to_string(size));
  return {};
}

const TensorDesc& OutputOf(const Segment& segment, size_t output) {
  const Function& body = segment.body.entry();
  return body.values[static_cast<size_t>(body.regions[0].outputs[output])].desc;
}

Status CheckType(DType dtype, const TensorDesc& desc, const std::string& name) {
  if (dtype == desc.dtype) return {};
  return Fail(ErrorCode::kMalformed, name + " has dtype " + std::string(DTypeName(dtype)) + "; the segment's is " +
                                         std::string(DTypeName(desc.dtype)));
}

// The storage a value names exists and has its dtype, and its view has as many strides as dims.
Status CheckValue(const Plan& plan, const Segment& segment, const PlanValue& value, size_t index) {
  const std::string name = "plan value " + std::to_string(index);
  if (value.dims.size() != value.strides.size() || value.dims.size() > static_cast<size_t>(limits::kRankMax))
    return Fail(ErrorCode::kMalformed, name + " has " + std::to_string(value.dims.size()) + " dims and " +
                                           std::to_string(value.strides.size()) + " strides");
  switch (value.storage) {
    case StorageKind::kInput: {
      RETURN_IF_ERROR(CheckIndex(value.index, static_cast<size_t>(segment.runtime_inputs), name + ": input"));
      if (!segment.input(value.index).has_rank())
        return Fail(ErrorCode::kMalformed, name + " reads an input of unknown rank");
      return CheckType(value.dtype, segment.input(value.index), name);
    }
    case StorageKind::kOutput:
      RETURN_IF_ERROR(CheckIndex(value.index, plan.outputs.size(), name + ": output"));
      return CheckType(value.dtype, OutputOf(segment, static_cast<size_t>(value.index)), name);
    case StorageKind::kWeight:
      RETURN_IF_ERROR(CheckIndex(value.index, static_cast<size_t>(segment.weight_count()), name + ": weight"));
      return CheckType(value.dtype, segment.input(segment.runtime_inputs + value.index), name);
    case StorageKind::kPrepacked:
      return CheckIndex(value.index, plan.recipes.size(), name + ": recipe");
    case StorageKind::kArena:
      return CheckIndex(value.index, plan.buffers.size(), name + ": buffer");
  }
  return Fail(ErrorCode::kMalformed, name + " has an unknown storage kind");
}

// A buffer in another's place follows it: its first step is a kernel, and the other's last, which was made before. So
// chains end, and no two take one place.
Status CheckBuffers(const Plan& plan) {
  std::vector<bool> taken(plan.buffers.size(), false);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlanBuffer& buffer = plan.buffers[i];
    const std::string name = "plan buffer " + std::to_string(i);
    if (buffer.first_step < 0 || buffer.last_step < buffer.first_step)
      return Fail(ErrorCode::kMalformed, name + " has an empty life");
    if (static_cast<size_t>(buffer.last_step) >= std::max<size_t>(1, plan.steps.size()))
      return Fail(ErrorCode::kMalformed, name + " is alive until step " + std::to_string(buffer.last_step) + " of " +
                                             std::to_string(plan.steps.size()));
    if (buffer.in_place_of == -1) continue;
    RETURN_IF_ERROR(CheckIndex(buffer.in_place_of, plan.buffers.size(), name + " takes the place of buffer"));
    const auto from = static_cast<size_t>(buffer.in_place_of), step = static_cast<size_t>(buffer.first_step);
    const PlanBuffer& other = plan.buffers[from];
    if (taken[from] || other.last_step != buffer.first_step || other.first_step >= buffer.first_step ||
        step >= plan.steps.size() || !std::holds_alternative<KernelStep>(plan.steps[step].step))
      return Fail(ErrorCode::kMalformed, name + " cannot take the place of buffer " + std::to_string(from) +
                                             ", which is alive in steps " + std::to_string(other.first_step) + ".." +
                                             std::to_string(other.last_step));
    taken[from] = true;
  }
  return {};
}

// A buffer is only touched by the steps it is alive in; inputs, weights and packed weights are never written.
Status CheckUse(const Plan& plan, size_t step, int32_t index, bool written) {
  RETURN_IF_ERROR(CheckIndex(index, plan.values.size(), At(step) + ": value"));
  const PlanValue& value = plan.values[static_cast<size_t>(index)];
  if (value.storage == StorageKind::kArena) {
    const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(value.index)];
    const auto now = static_cast<int32_t>(step);
    if (now < buffer.first_step || now > buffer.last_step)
      return Fail(ErrorCode::kMalformed, At(step) + " uses buffer " + std::to_string(value.index) +
                                             " outside its steps " + std::to_string(buffer.first_step) + ".." +
                                             std::to_string(buffer.last_step));
  }
  if (written && value.storage != StorageKind::kArena && value.storage != StorageKind::kOutput)
    return Fail(ErrorCode::kMalformed, At(step) + " writes to an input or a weight");
  return {};
}

Status CheckStep(const Plan& plan, size_t s) {
  if (const auto* kernel = std::get_if<KernelStep>(&plan.steps[s].step)) {
    RETURN_IF_ERROR(CheckIndex(kernel->kernel, plan.kernels.size(), At(s) + ": kernel"));
    for (int32_t value : kernel->pointers) RETURN_IF_ERROR(CheckUse(plan, s, value, false));
    return {};
  }
  const auto& node = std::get<ReferenceStep>(plan.steps[s].step);
  const TensorOpInfo& info = OpInfo(node.op);
  if (info.effects != OpEffects::kPure && info.effects != OpEffects::kDecision && node.op != TensorOp::kTopK &&
      node.op != TensorOp::kRange && node.op != TensorOp::kOneHot)
    return Fail(ErrorCode::kMalformed, At(s) + ": op " + std::string(info.name) + " cannot be part of a plan");
  if (node.op == TensorOp::kConstant) return Fail(ErrorCode::kMalformed, At(s) + ": constants are recipes, not steps");
  const auto count = static_cast<int>(node.inputs.size());
  if (count < info.min_inputs || count > info.max_inputs || node.outputs.empty())
    return Fail(ErrorCode::kMalformed, At(s) + ": op " + std::string(info.name) + " with " + std::to_string(count) +
                                           " inputs and " + std::to_string(node.outputs.size()) + " outputs");
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == -1 && static_cast<int>(i) >= info.min_inputs) continue;
    RETURN_IF_ERROR(CheckUse(plan, s, node.inputs[i], false));
  }
  for (int32_t value : node.outputs)
    if (value != -1) RETURN_IF_ERROR(CheckUse(plan, s, value, true));
  return {};
}

// What reads weights as the model holds them packs none.
Status CheckRecipes(const Plan& plan) {
  for (size_t r = 0; r < plan.recipes.size(); ++r)
    if (plan.weights == WeightForm::kAsGiven && !plan.recipes[r].weights.empty())
      return Fail(ErrorCode::kMalformed, "plan says that it reads weights as given; its recipe " + std::to_string(r) +
                                             " packs weight " + std::to_string(plan.recipes[r].weights.front()));
  return {};
}

// Measurements name kernels of the plan and choices of theirs; a plan that is not tuned has none.
Status CheckTuning(const Plan& plan) {
  if (!plan.tuned && !plan.tuning.empty())
    return Fail(ErrorCode::kMalformed, "plan holds measurements of tiles and does not say that it is tuned");
  if (plan.tuning.size() > plan.kernels.size())
    return Fail(ErrorCode::kMalformed, "plan holds more measurements than kernels");
  for (const KernelTuning& tuning : plan.tuning) {
    RETURN_IF_ERROR(CheckIndex(tuning.kernel, plan.kernels.size(), "plan's measurements: kernel"));
    RETURN_IF_ERROR(CheckIndex(tuning.chosen, tuning.choices.size(), "plan's measurements: choice"));
    if (tuning.choices.size() > kTunedChoicesMax)
      return Fail(ErrorCode::kLimitExceeded, "plan's measurements: " + std::to_string(tuning.choices.size()) +
                                                 " choices of a kernel; at most " + std::to_string(kTunedChoicesMax));
    for (const TunedChoice& choice : tuning.choices)
      if (choice.what.size() > kTunedTextMax)
        return Fail(ErrorCode::kLimitExceeded, "plan's measurements: a choice is called by " +
                                                   std::to_string(choice.what.size()) + " bytes; at most " +
                                                   std::to_string(kTunedTextMax));
  }
  return {};
}

}  // namespace

Status VerifyPlan(const Plan& plan, const Segment& segment) {
  if (plan.segment != segment.id)
    return Fail(ErrorCode::kMalformed,
                "plan is for segment " + plan.segment.ShortHex() + ", not " + segment.id.ShortHex());
  if (!TargetFromName(plan.target))
    return Fail(ErrorCode::kTargetMismatch, "plan names unknown target \"" + plan.target + "\"");
  if (plan.kernels.size() > limits::kPlanKernelsMax || plan.steps.size() > limits::kPlanStepsMax)
    return Fail(ErrorCode::kLimitExceeded, "plan has " + std::to_string(plan.kernels.size()) + " kernels and " +
                                               std::to_string(plan.steps.size()) + " steps");
  if (plan.guard.symbols.size() != segment.body.symbols.symbol_count() ||
      plan.guard.inputs.size() != static_cast<size_t>(segment.runtime_inputs))
    return Fail(ErrorCode::kMalformed, "plan's guard does not have the segment's symbols and inputs");
  const Function& body = segment.body.entry();
  if (plan.outputs.size() != body.regions[0].outputs.size())
    return Fail(ErrorCode::kMalformed, "plan has " + std::to_string(plan.outputs.size()) +
                                           " outputs, the segment has " +
                                           std::to_string(body.regions[0].outputs.size()));
  RETURN_IF_ERROR(CheckBuffers(plan));
  RETURN_IF_ERROR(CheckRecipes(plan));
  for (size_t i = 0; i < plan.values.size(); ++i) RETURN_IF_ERROR(CheckValue(plan, segment, plan.values[i], i));
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    RETURN_IF_ERROR(CheckIndex(plan.outputs[i], plan.values.size(), "plan output: value"));
    const PlanValue& value = plan.values[static_cast<size_t>(plan.outputs[i])];
    if (value.storage != StorageKind::kOutput || value.index != static_cast<int32_t>(i))
      return Fail(ErrorCode::kMalformed, "plan output " + std::to_string(i) + " does not lie in its own storage");
    if (const TensorDesc& desc = OutputOf(segment, i);
        desc.has_rank() && static_cast<size_t>(desc.rank()) != value.dims.size())
      return Fail(ErrorCode::kMalformed, "plan output " + std::to_string(i) + " has rank " +
                                             std::to_string(value.dims.size()) + "; the segment's has " +
                                             std::to_string(desc.rank()));
  }
  for (size_t s = 0; s < plan.steps.size(); ++s) RETURN_IF_ERROR(CheckStep(plan, s));
  return CheckTuning(plan);
}

}  // namespace kiln
