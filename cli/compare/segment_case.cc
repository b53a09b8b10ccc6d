#include "cli/compare/segment_case.h"

#include <algorithm>
#include <map>

#include "common/bytecode/emit.h"
#include "common/numeric/difference.h"
#include "vm-worker/dispatch/plan_instance.h"
#include "vm-worker/interp/interpreter.h"
#include "vm-worker/tiering/shadow.h"

namespace kiln::cli {
namespace {

std::vector<TensorRef> Refs(const std::vector<Tensor>& tensors) {
  std::vector<TensorRef> refs;
  for (const Tensor& tensor : tensors) refs.push_back(tensor.ref);
  return refs;
}

// What the interpreter makes of every node of the segment.
Result<std::map<ValueId, Tensor>> EveryValue(const SegmentCase& call) {
  Segment segment = call.plan->segment();
  Region& region = segment.body.functions[0].regions[0];
  region.outputs.clear();
  for (const Node& node : region.nodes)
    for (ValueId output : node.outputs)
      if (output != kNoValue && !IsRematerialised(node.op)) region.outputs.push_back(output);
  ASSIGN_OR_RETURN(const auto body, LoadSegmentBody(segment));
  VmContext context;
  ASSIGN_OR_RETURN(std::vector<Tensor> tensors,
                   RunSegment(context, *body, segment, Refs(call.inputs), call.plan->weights(), call.parameters));
  std::map<ValueId, Tensor> values;
  for (size_t i = 0; i < tensors.size(); ++i) values[region.outputs[i]] = std::move(tensors[i]);
  return values;
}

class HeapMemory final : public KernelMemory {
 public:
  void* AllocateOutput(size_t bytes) override { return AllocateScratch(bytes); }
  void* AllocateScratch(size_t bytes) override {
    blocks_.push_back(Buffer::Allocate(bytes));
    return blocks_.back()->data();
  }

 private:
  std::vector<std::shared_ptr<Buffer>> blocks_;
};

// Compares what each step leaves behind with the interpreter's value of the same node.
class FirstWrongStep final : public StepWatcher {
 public:
  FirstWrongStep(const LinkedPlan& linked, std::span<const int64_t> symbols, const std::map<ValueId, Tensor>& expected)
      : plan_(linked.plan()),
        nodes_(linked.segment().body.entry().regions[0].nodes),
        symbols_(symbols),
        bounds_(ValueErrorBounds(linked.segment().body, symbols, linked.plan().numeric_mode)),
        expected_(expected) {}

  void AfterStep(size_t step, std::span<void* const> pointers) override {
    const std::vector<int32_t> written = Written(step);
    if (found_) return;
    for (int32_t node : plan_.steps[step].nodes)
      for (ValueId value : nodes_[static_cast<size_t>(node)].outputs)
        if (auto difference = Compare(value, step, written, pointers)) {
          found_ = StepDifference{step, node, *difference};
          return;
        }
  }

  std::optional<StepDifference> found() const { return found_; }

 private:
  const std::vector<int32_t>& Operands(size_t step) const {
    if (const auto* kernel = std::get_if<KernelStep>(&plan_.steps[step].step)) return kernel->pointers;
    return std::get<ReferenceStep>(plan_.steps[step].step).outputs;
  }

  // Positions of the step's operands that it is the first to touch: those it has made. A reference step's outputs
  // follow its inputs.
  std::vector<int32_t> Written(size_t step) {
    std::vector<int32_t> positions;
    const auto* reference = std::get_if<ReferenceStep>(&plan_.steps[step].step);
    const auto first = static_cast<int32_t>(reference == nullptr ? 0 : reference->inputs.size());
    const std::vector<int32_t>& operands = Operands(step);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] < 0) continue;
      const PlanValue& value = plan_.values[static_cast<size_t>(operands[i])];
      const bool made_here = value.storage == StorageKind::kArena || value.storage == StorageKind::kOutput;
      if (made_here && touched_.emplace(std::pair(value.storage, value.index), step).first->second == step)
        positions.push_back(first + static_cast<int32_t>(i));
    }
    return positions;
  }

  std::optional<TensorRef> ValueAt(size_t step, int32_t position, std::span<void* const> pointers) const {
    const auto* reference = std::get_if<ReferenceStep>(&plan_.steps[step].step);
    const size_t operand = static_cast<size_t>(position) - (reference == nullptr ? 0 : reference->inputs.size());
    const PlanValue& value = plan_.values[static_cast<size_t>(Operands(step)[operand])];
    TensorRef ref{value.dtype, {}, {}, pointers[static_cast<size_t>(position)]};
    for (size_t d = 0; d < value.dims.size(); ++d) {
      const Result<int64_t> dim = plan_.symbols.Evaluate(value.dims[d], symbols_),
                            stride = plan_.symbols.Evaluate(value.strides[d], symbols_);
      if (!dim.has_value() || !stride.has_value()) return std::nullopt;
      ref.dims.push_back(*dim);
      ref.strides.push_back(*stride);
    }
    return ref;
  }

  // The difference of a node's value, when a written operand is that value (same dtype and shape, or the same elements
  // reshaped) and none of those agrees.
  std::optional<std::string> Compare(ValueId value, size_t step, const std::vector<int32_t>& written,
                                     std::span<void* const> pointers) const {
    const auto it = expected_.find(value);
    if (it == expected_.end()) return std::nullopt;
    std::optional<std::string> difference;
    for (int32_t position : written) {
      std::optional<TensorRef> actual = ValueAt(step, position, pointers);
      if (!actual || actual->dtype != it->second.ref.dtype) continue;
      if (!(actual->dims == it->second.ref.dims)) {
        if (actual->elements() != it->second.ref.elements() || !actual->IsContiguous()) continue;
        actual = MakeRef(actual->dtype, it->second.ref.dims, actual->data);
      }
      auto found = FirstDifference(it->second.ref, *actual, bounds_[static_cast<size_t>(value)]);
      if (!found) return std::nullopt;
      if (!difference) difference = std::move(found);
    }
    return difference;
  }

  const Plan& plan_;
  const std::vector<Node>& nodes_;
  std::span<const int64_t> symbols_;
  const std::vector<ErrorBound> bounds_;  // per value of the segment
  const std::map<ValueId, Tensor>& expected_;
  std::map<std::pair<StorageKind, int32_t>, size_t> touched_;  // storage -> the step that touched it first
  std::optional<StepDifference> found_;
};

// Values a step fuses away are in `expected` but never written: only a step's last value can be compared, and inner
// ones of the same shape must not be mistaken for it.
void DropInnerValues(const LinkedPlan& linked, std::map<ValueId, Tensor>& expected) {
  const Region& region = linked.segment().body.entry().regions[0];
  for (const PlanStep& step : linked.plan().steps)
    for (int32_t node : step.nodes)
      for (ValueId value : region.nodes[static_cast<size_t>(node)].outputs) {
        bool leaves = std::ranges::find(region.outputs, value) != region.outputs.end();
        for (size_t reader = 0; reader < region.nodes.size() && !leaves; ++reader)
          leaves = std::ranges::find(region.nodes[reader].inputs, value) != region.nodes[reader].inputs.end() &&
                   std::ranges::find(step.nodes, static_cast<int32_t>(reader)) == step.nodes.end();
        if (!leaves) expected.erase(value);
      }
}

Result<std::optional<StepDifference>> FindStep(const SegmentCase& call, std::span<const int64_t> symbols) {
  ASSIGN_OR_RETURN(auto expected, EveryValue(call));
  DropInnerValues(*call.plan, expected);
  ASSIGN_OR_RETURN(auto instance, PlanInstance::Instantiate(call.plan, symbols));
  HeapMemory memory;
  std::vector<void*> outputs;
  for (size_t i = 0; i < instance->output_count(); ++i)
    outputs.push_back(memory.AllocateScratch(static_cast<size_t>(instance->output_bytes(i))));
  void* arena = memory.AllocateScratch(static_cast<size_t>(instance->arena_bytes()));
  FirstWrongStep watcher(*call.plan, symbols, expected);
  RETURN_IF_ERROR(instance->Run({Refs(call.inputs), outputs, arena, &memory, nullptr, nullptr, &watcher}));
  return watcher.found();
}

}  // namespace

Result<std::optional<CaseDifference>> CompareCase(const SegmentCase& call) {
  const Segment& segment = call.plan->segment();
  std::vector<int64_t> symbols(segment.symbols.size(), -1);
  RETURN_IF_ERROR(BindSymbols(segment, Refs(call.inputs), call.parameters, symbols));
  ASSIGN_OR_RETURN(const auto body, LoadSegmentBody(segment));
  VmContext context;
  ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                   RunSegment(context, *body, segment, Refs(call.inputs), call.plan->weights(), call.parameters));
  const ShadowVerdict verdict = CheckShadow({.plan = call.plan,
                                             .inputs = call.inputs,
                                             .parameters = call.parameters,
                                             .outputs = std::move(outputs),
                                             .keep_alive = nullptr});
  if (verdict.outcome == ShadowOutcome::kClean) return std::nullopt;
  CaseDifference difference{verdict.detail, verdict.outcome == ShadowOutcome::kUndecided, {}};
  if (verdict.outcome == ShadowOutcome::kFault) return difference;
  if (auto step = FindStep(call, symbols); step.has_value()) difference.step = *step;
  return difference;
}

}  // namespace kiln::cli
