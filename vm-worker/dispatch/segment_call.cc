#include "vm-worker/dispatch/segment_call.h"

#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

// Scratch of reference steps comes from the interpreter's arena.
class StepMemory final : public KernelMemory {
 public:
  explicit StepMemory(SegmentMemory& memory) : memory_(memory) {}
  void* AllocateOutput(size_t bytes) override { return memory_.AllocateScratch(bytes); }
  void* AllocateScratch(size_t bytes) override { return memory_.AllocateScratch(bytes); }

 private:
  SegmentMemory& memory_;
};

Result<uint32_t> PlaceInputs(const Guard& guard, SegmentMemory& memory, std::vector<TensorRef>& inputs) {
  uint32_t copies = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorRef& input = inputs[i];
    const bool aligned =
        guard.inputs[i].alignment == AlignmentClass::kElement || reinterpret_cast<uintptr_t>(input.data) % 64 == 0;
    if (aligned && (input.IsContiguous() || !guard.inputs[i].contiguous)) continue;
    const TensorRef dense =
        MakeRef(input.dtype, input.dims, memory.AllocateScratch(static_cast<size_t>(input.bytes())));
    if (dense.data == nullptr)
      return Fail(ErrorCode::kResourceExhausted, "no memory for a contiguous copy of an input");
    CopyElements(input, dense);
    input = dense;
    ++copies;
  }
  return copies;
}

}  // namespace

Result<SegmentCallResult> RunOnEntry(PlanInstance& instance, const SegmentEntry& entry, SegmentCallTables& tables,
                                     StepTiming* timing, StepWatcher* watcher, KernelPool* pool) {
  SegmentCallResult result;
  tables.inputs.assign(entry.inputs.begin(), entry.inputs.end());
  ASSIGN_OR_RETURN(result.input_copies, PlaceInputs(instance.linked().plan().guard, *entry.memory, tables.inputs));
  tables.outputs.clear();
  for (size_t i = 0; i < instance.output_count(); ++i) {
    void* data = entry.memory->AllocateOutput(i, static_cast<size_t>(instance.output_bytes(i)));
    if (data == nullptr) return Fail(ErrorCode::kResourceExhausted, "no memory for an output");
    entry.outputs[i] = MakeRef(instance.output_dtype(i), instance.output_dims(i), data);
    tables.outputs.push_back(data);
  }
  void* arena = entry.memory->AllocateScratch(static_cast<size_t>(instance.arena_bytes()));
  if (arena == nullptr) return Fail(ErrorCode::kResourceExhausted, "no memory for temporaries");
  StepMemory memory(*entry.memory);
  RETURN_IF_ERROR(
      instance.Run({tables.inputs, tables.outputs, arena, &memory, &result.reference_ns, timing, watcher, pool}));
  return result;
}

Result<Tensor> InterpretRecipe(const Program& program, std::span<const TensorRef> inputs) {
  ASSIGN_OR_RETURN(std::shared_ptr<const LoadedProgram> loaded, LoadedProgram::Load(program));
  VmContext context;
  ASSIGN_OR_RETURN(std::vector<Tensor> outputs, context.Run(*loaded, inputs));
  if (outputs.size() != 1)
    return Fail(ErrorCode::kMalformed, "a prepack recipe has one output, not " + std::to_string(outputs.size()));
  return std::move(outputs[0]);
}

}  // namespace kiln
