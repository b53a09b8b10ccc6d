#include "vm-worker/dispatch/segment_call.h"

#include "common/signature/signature.h"
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

Status CopyInputs(std::span<const uint32_t> copies, SegmentMemory& memory, std::span<TensorRef> inputs) {
  for (const uint32_t i : copies) {
    TensorRef& input = inputs[i];
    const TensorRef dense =
        MakeRef(input.dtype, input.dims, memory.AllocateScratch(static_cast<size_t>(input.bytes())));
    if (dense.data == nullptr)
      return Fail(ErrorCode::kResourceExhausted, "no memory for a contiguous copy of an input");
    CopyElements(input, dense);
    input = dense;
  }
  return {};
}

// What a run reads, and where it writes: inputs in the form that the plan wants, memory for the outputs of an instance.
template <class Instance>
Status PlaceCall(const Instance& instance, const SegmentEntry& entry, std::span<const uint32_t> copies,
                 SegmentCallTables& tables, std::span<const TensorRef>& inputs) {
  inputs = entry.inputs;
  if (!copies.empty()) {
    tables.inputs.assign(inputs.begin(), inputs.end());
    RETURN_IF_ERROR(CopyInputs(copies, *entry.memory, tables.inputs));
    inputs = tables.inputs;
  }
  tables.outputs.clear();
  for (size_t i = 0; i < instance.output_count(); ++i) {
    void* data = entry.memory->AllocateOutput(i, static_cast<size_t>(instance.output_bytes(i)));
    if (data == nullptr) return Fail(ErrorCode::kResourceExhausted, "no memory for an output");
    entry.outputs[i] = instance.output(i);
    entry.outputs[i].data = data;
    tables.outputs.push_back(data);
  }
  return {};
}

}  // namespace

std::vector<uint32_t> InputsToCopyForDevice(std::span<const TensorRef> inputs) {
  std::vector<uint32_t> copies;
  for (uint32_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].IsContiguous()) copies.push_back(i);
  return copies;
}

std::vector<uint32_t> InputsToCopy(const Guard& guard, std::span<const TensorRef> inputs) {
  std::vector<uint32_t> copies;
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    const InputGuard& wanted = guard.inputs[i];
    const bool aligned = wanted.alignment == AlignmentClass::kElement || AlignmentOf(inputs[i]) == AlignmentClass::k64;
    if (!aligned || (wanted.contiguous && !inputs[i].IsContiguous())) copies.push_back(i);
  }
  return copies;
}

Status RunOnEntry(PlanInstance& instance, const SegmentEntry& entry, std::span<const uint32_t> copies,
                  SegmentCallTables& tables, int64_t& reference_ns, StepTiming* timing, KernelPool* pool) {
  std::span<const TensorRef> inputs;
  RETURN_IF_ERROR(PlaceCall(instance, entry, copies, tables, inputs));
  void* arena = entry.memory->AllocateScratch(static_cast<size_t>(instance.arena_bytes()));
  if (arena == nullptr) return Fail(ErrorCode::kResourceExhausted, "no memory for temporaries");
  StepMemory memory(*entry.memory);
  return instance.Run(
      {inputs, tables.outputs, arena, &memory, &reference_ns, timing, nullptr, pool, entry.deadline_ns});
}

Status RunOnDevice(DeviceInstance& instance, DeviceLane& lane, const SegmentEntry& entry,
                   std::span<const uint32_t> copies, SegmentCallTables& tables, int64_t& reference_ns,
                   StepTiming* timing) {
  std::span<const TensorRef> inputs;
  RETURN_IF_ERROR(PlaceCall(instance, entry, copies, tables, inputs));
  void* arena = entry.memory->AllocateScratch(static_cast<size_t>(instance.host_bytes()));
  if (arena == nullptr) return Fail(ErrorCode::kResourceExhausted, "no memory for temporaries");
  StepMemory memory(*entry.memory);
  return instance.Run(lane, {inputs, tables.outputs, arena, &memory, &reference_ns, timing, entry.deadline_ns});
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
