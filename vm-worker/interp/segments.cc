// Entering segments: the hook, the memo, and the static form's steps.
#include <cstring>

#include "vm-worker/interp/machine.h"

namespace kiln {

// Gathers what describes the entry: inputs, parameters, signature.
Status Machine::EnterSegment(uint32_t segment, std::span<const uint32_t> inputs) {
  RETURN_IF_ERROR(CheckDeadline());
  context_.segment_inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) context_.segment_inputs[i] = At(inputs[i]).ref;
  context_.parameters.clear();
  for (Dim dim : loaded_.sites()[segment].parameters) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> value, EvaluateInFrame(program_.symbols, dim, state_.frame));
    context_.parameters.push_back(value.value_or(-1));
  }
  BuildSignature(context_.segment_inputs, context_.parameters, &context_.signature);
  return {};
}

SegmentEntry Machine::EntryOf(uint32_t segment) {
  return {.program = &loaded_,
          .segment = static_cast<int>(segment),
          .inputs = context_.segment_inputs,
          .weights = loaded_.weights(static_cast<int>(segment)),
          .parameters = context_.parameters,
          .signature = &context_.signature,
          .outputs = context_.segment_outputs,
          .memory = this,
          .deadline_ns = options_.deadline_ns};
}

void* Machine::AllocateOutput(size_t, size_t bytes) {
  return context_.memory.AllocateOutput(bytes);
}
void* Machine::AllocateScratch(size_t bytes) {
  return context_.memory.AllocateScratch(bytes);
}

Result<bool> Machine::ProfilePoint(uint32_t segment, std::span<const uint32_t> inputs,
                                   std::span<const uint32_t> outputs) {
  RETURN_IF_ERROR(EnterSegment(segment, inputs));
  context_.segment_outputs.assign(outputs.size(), TensorRef{});
  const SegmentVerdict verdict = options_.hook->Enter(EntryOf(segment));
  telling_ = verdict == SegmentVerdict::kInterpretAndTell;
  if (telling_) entered_ns_ = context_.options.clock->NowNs();
  if (verdict != SegmentVerdict::kExecuted) {
    context_.memory.End();
    RETURN_IF_ERROR(CheckDeadline());  // it may be what ended the plan
    return false;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorRef& result = context_.segment_outputs[i];
    BlockId block = context_.memory.Claim(result.data);
    // Else it is a view of an input (whose block then lives on) or of a weight.
    for (size_t k = 0; block == kNoBlock && k < inputs.size(); ++k) {
      const BlockId held = At(inputs[k]).block;
      if (held == kNoBlock) continue;
      const char* begin = static_cast<const char*>(arena_.data(held));
      if (result.data < begin || result.data >= begin + arena_.size(held)) continue;
      arena_.Retain(held);
      block = held;
    }
    Set(outputs[i], result, block);
  }
  context_.memory.End();
  return true;
}

void Machine::Leave(uint32_t segment, std::span<const uint32_t> outputs) {
  telling_ = false;
  const int64_t elapsed_ns = context_.options.clock->NowNs() - entered_ns_;
  for (size_t i = 0; i < outputs.size(); ++i) context_.segment_outputs[i] = At(outputs[i]).ref;
  options_.hook->Leave(EntryOf(segment), elapsed_ns);
  context_.memory.End();
}

// Whether a static form ran.
Result<bool> Machine::RunMemoised(uint32_t segment, std::span<const uint32_t> inputs,
                                  std::span<const uint32_t> outputs) {
  if (!options_.static_forms) return false;
  if (!options_.hook) RETURN_IF_ERROR(EnterSegment(segment, inputs));
  StaticForm* form = state_.memo.Find(segment, context_.signature);
  if (!form) {
    ASSIGN_OR_RETURN(
        std::unique_ptr<StaticForm> made,
        ResolveSegment(loaded_, static_cast<int>(segment), context_.segment_inputs, state_.frame, &context_.rule));
    if (!made) return false;
    form = state_.memo.Insert(segment, context_.signature, std::move(made));
  }
  RETURN_IF_ERROR(RunSteps(*form, inputs, outputs));
  if (telling_) Leave(segment, outputs);
  return true;
}

// The node that a form begins with, to name a segment by.
uint32_t Machine::FirstNode(const StaticForm& form) {
  for (const StaticForm::Step& step : form.steps)
    if (step.node != kCopyNode) return step.node;
  return 0;
}

// Memory for the form's tensors, where they are not where they were in the call before: the block of temporaries
// (kNoBlock: it has none), and in `moving` those that outlive the segment.
Result<BlockId> Machine::PlaceTensors(StaticForm& form, size_t inputs) {
  BlockId temporaries = kNoBlock;
  char** bases = form.bases.data();
  bool moved = false;
  auto rebase = [&](size_t base, void* data) {
    moved |= bases[base] != data;
    bases[base] = static_cast<char*>(data);
  };
  // All memory first: a call that ends for want of it leaves bases and addresses as they were, together.
  if (form.temporary_bytes > 0) {
    ASSIGN_OR_RETURN(temporaries, arena_.Allocate(form.temporary_bytes));
  }
  context_.moving.clear();
  for (const size_t bytes : form.escaping) {
    ASSIGN_OR_RETURN(const BlockId block, arena_.Allocate(bytes));
    context_.moving.push_back({{}, block});
  }
  if (temporaries != kNoBlock) rebase(StaticForm::kTemporaries, arena_.data(temporaries));
  for (size_t i = 0; i < inputs; ++i) rebase(1 + i, context_.segment_inputs[i].data);
  for (size_t i = 0; i < form.escaping.size(); ++i) rebase(1 + inputs + i, arena_.data(context_.moving[i].block));
  if (moved)
    for (const StaticForm::Patch& patch : form.patches)
      form.tensors[patch.tensor].data = bases[patch.base] + patch.offset;
  return temporaries;
}

Status Machine::RunSteps(StaticForm& form, std::span<const uint32_t> inputs, std::span<const uint32_t> outputs) {
  const Result<BlockId> placed = PlaceTensors(form, inputs.size());
  if (!placed) return FailAt(FirstNode(form), FailIn("the segment that begins here", placed.error()).error());
  const BlockId temporaries = *placed;
  for (const StaticForm::Step& step : form.steps) {
    const uint32_t* operands = &form.operands[step.first_operand];
    const size_t count = size_t{step.inputs} + step.outputs;
    RETURN_IF_ERROR(CountStep());
    if (context_.inputs.size() < count) context_.inputs.resize(count);
    TensorRef* gathered = context_.inputs.data();
    for (size_t i = 0; i < count; ++i) {
      if (operands[i] == kNoOperand) {
        gathered[i] = TensorRef{};
      } else {
        gathered[i] = form.tensors[operands[i]];
      }
    }
    KernelCall call{.op = step.op,
                    .attributes = step.attributes,
                    .constants = program_.constants,
                    .inputs = {gathered, step.inputs},
                    .outputs = {gathered + step.inputs, step.outputs},
                    .memory = &context_.memory,
                    .prepared = step.prepared};
    Status status = step.run(call);
    context_.memory.End();
    if (!status) [[unlikely]] {
      if (step.node == kCopyNode) return status;
      return FailAt(step.node, status.error());
    }
  }
  RETURN_IF_ERROR(KeepOutputs(form, inputs, outputs));
  if (temporaries != kNoBlock) arena_.Release(temporaries);
  return {};
}

// Outputs into their registers; blocks that none of them lies in end here.
Status Machine::KeepOutputs(StaticForm& form, std::span<const uint32_t> inputs, std::span<const uint32_t> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const StaticForm::Output& output = form.outputs[i];
    BlockId block = kNoBlock;
    if (output.base > static_cast<int32_t>(inputs.size())) {
      block = context_.moving[static_cast<size_t>(output.base) - 1 - inputs.size()].block;
    } else if (output.base > 0) {
      block = At(inputs[static_cast<size_t>(output.base - 1)]).block;
    }
    if (block != kNoBlock) arena_.Retain(block);
    // A literal may be dropped with the form while the tensor still lives: it is copied out.
    if (output.base < 0 && form.IsLiteral(output.tensor)) {
      ASSIGN_OR_RETURN(const Register copy,
                       NewTensor(form.tensors[output.tensor].dtype, form.tensors[output.tensor].dims));
      CopyElements(form.tensors[output.tensor], copy.ref);
      Set(outputs[i], copy.ref, copy.block);
      continue;
    }
    Set(outputs[i], form.tensors[output.tensor], block);
  }
  for (const Register& held : context_.moving) arena_.Release(held.block);
  return {};
}

}  // namespace kiln
