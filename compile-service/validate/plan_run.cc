#include "compile-service/validate/plan_run.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/base/checked_math.h"
#include "common/ops/empty_call.h"
#include "common/ops/reference_kernel.h"
#include "common/segment/shape_rule.h"
#include "compile-service/validate/reference_run.h"

namespace kiln {
namespace {

// NaN, -1, true: what nobody takes for a result by chance. Before each storage, and in it until a step writes there.
constexpr int kUnwritten = 0xff;

class StepMemory final : public KernelMemory {
 public:
  void* AllocateOutput(size_t bytes) override { return AllocateScratch(bytes); }
  void* AllocateScratch(size_t bytes) override {
    kept_.push_back(Buffer::Allocate(bytes));
    return kept_.back()->data();
  }

 private:
  std::vector<std::shared_ptr<Buffer>> kept_;
};

Status Outside(size_t value, int64_t storage_bytes) {
  return Fail(ErrorCode::kIntegrityFailure, "plan value " + std::to_string(value) + " lies outside its storage of " +
                                                std::to_string(storage_bytes) + " bytes");
}

}  // namespace

Result<std::unique_ptr<PlanRun>> PlanRun::Prepare(const Plan& plan, const Segment& segment, const CodeMapping& code,
                                                  std::span<const int64_t> symbols, std::span<const TensorRef> inputs,
                                                  std::span<const TensorRef> weights, PlanRunForm form,
                                                  int64_t bytes_max) {
  std::unique_ptr<PlanRun> run(new PlanRun(plan, segment, code, symbols, inputs, weights, form, bytes_max));
  RETURN_IF_ERROR(run->Prepack());
  RETURN_IF_ERROR(run->TakeOutputs());
  RETURN_IF_ERROR(run->TakeBuffers());
  RETURN_IF_ERROR(run->FindViews());
  return run;
}

Result<GuardedMemory*> PlanRun::Take(int64_t bytes, GuardedSharing sharing) {
  if (bytes < 0 || bytes > bytes_left_)
    return Fail(ErrorCode::kResourceExhausted, "the plan needs more memory than a trial has");
  bytes_left_ -= bytes;
  auto memory = std::make_unique<GuardedMemory>(static_cast<size_t>(bytes), 64, sharing);
  if (memory->data() == nullptr) return Fail(ErrorCode::kResourceExhausted, "no guarded memory for a plan's trial");
  std::ranges::fill(memory->before(), static_cast<uint8_t>(kUnwritten));
  std::memset(memory->data(), kUnwritten, static_cast<size_t>(bytes));
  memory_.push_back(std::move(memory));
  return memory_.back().get();
}

Status PlanRun::Prepack() {
  for (const PrepackRecipe& recipe : plan_.recipes) {
    std::vector<TensorRef> inputs;
    for (const int32_t weight : recipe.weights) {
      if (weight < 0 || static_cast<size_t>(weight) >= weights_.size())
        return Fail(ErrorCode::kIntegrityFailure, "a prepack recipe reads weight " + std::to_string(weight));
      inputs.push_back(weights_[static_cast<size_t>(weight)]);
    }
    ASSIGN_OR_RETURN(const std::vector<Tensor> made, RunByReference(recipe.program, inputs, {}, {}, bytes_left_));
    if (made.size() != 1) return Fail(ErrorCode::kIntegrityFailure, "a prepack recipe makes no single tensor");
    const TensorRef& tensor = made[0].ref;
    ASSIGN_OR_RETURN(GuardedMemory* const memory, Take(tensor.bytes(), GuardedSharing::kPrivate));
    std::memcpy(memory->data(), tensor.data, static_cast<size_t>(tensor.bytes()));
    packed_.push_back(MakeRef(tensor.dtype, tensor.dims, memory->data()));
    if (!memory->MakeReadOnly()) return Fail(ErrorCode::kResourceExhausted, "packed weights cannot be protected");
  }
  return {};
}

Status PlanRun::TakeOutputs() {
  const Function& body = segment_.body.entry();
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    const PlanValue& value = plan_.values[static_cast<size_t>(plan_.outputs[i])];
    const TensorDesc& desc = body.values[static_cast<size_t>(body.regions[0].outputs[i])].desc;
    Dims dims;
    for (size_t d = 0; d < value.dims.size(); ++d) {
      ASSIGN_OR_RETURN(const int64_t extent, Value(value.dims[d]));
      dims.push_back(extent);
      if (!desc.has_rank()) continue;
      ASSIGN_OR_RETURN(const std::optional<int64_t> wanted,
                       EvaluateInFrame(segment_.body.symbols, (*desc.dims)[d], symbols_));
      if (wanted && *wanted != extent)
        return Fail(ErrorCode::kIntegrityFailure, "dim " + std::to_string(d) + " of plan output " + std::to_string(i) +
                                                      " is " + std::to_string(extent) + "; the segment's is " +
                                                      std::to_string(*wanted));
    }
    ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(dims, value.dtype));
    ASSIGN_OR_RETURN(const GuardedMemory* const memory,
                     Take(elements * DTypeBytes(value.dtype), GuardedSharing::kShared));
    outputs_.push_back(MakeRef(value.dtype, dims, memory->data()));
  }
  return {};
}

Status PlanRun::TakeBuffers() {
  buffers_.resize(plan_.buffers.size());
  for (size_t b = 0; b < buffers_.size(); ++b) {
    ASSIGN_OR_RETURN(buffers_[b].bytes, Value(plan_.buffers[b].bytes));
  }
  // In the order of their first steps: whoever is followed in place comes before who follows.
  std::vector<size_t> order(buffers_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t b) { return plan_.buffers[b].first_step; });
  for (const size_t b : order) {
    const int32_t from = plan_.buffers[b].in_place_of;
    if (form_.in_place && from >= 0 && buffers_[static_cast<size_t>(from)].bytes == buffers_[b].bytes) {
      buffers_[b].data = buffers_[static_cast<size_t>(from)].data;
      continue;
    }
    ASSIGN_OR_RETURN(const GuardedMemory* const memory, Take(buffers_[b].bytes, GuardedSharing::kPrivate));
    buffers_[b].data = memory->data();
  }
  for (const PlanStep& step : plan_.steps) {
    scratch_.push_back({nullptr, 0});
    const auto* kernel = std::get_if<KernelStep>(&step.step);
    if (kernel == nullptr) continue;
    ASSIGN_OR_RETURN(scratch_.back().bytes, Value(kernel->scratch_bytes));
    ASSIGN_OR_RETURN(const GuardedMemory* const memory, Take(scratch_.back().bytes, GuardedSharing::kPrivate));
    scratch_.back().data = memory->data();
  }
  return {};
}

Status PlanRun::FindViews() {
  for (size_t i = 0; i < plan_.values.size(); ++i) {
    ASSIGN_OR_RETURN(const TensorRef view, View(i));
    views_.push_back(view);
  }
  return {};
}

PlanRun::Storage PlanRun::StorageOf(const PlanValue& value) const {
  const auto index = static_cast<size_t>(value.index);
  const auto of = [](const TensorRef& ref) { return Storage{ref.data, ref.bytes()}; };
  switch (value.storage) {
    case StorageKind::kInput:
      return of(inputs_[index]);
    case StorageKind::kOutput:
      return of(outputs_[index]);
    case StorageKind::kWeight:
      return of(weights_[index]);
    case StorageKind::kPrepacked:
      return of(packed_[index]);
    case StorageKind::kArena:
      return buffers_[index];
  }
  return {nullptr, 0};
}

Result<TensorRef> PlanRun::View(size_t index) const {
  const PlanValue& value = plan_.values[index];
  const Storage storage = StorageOf(value);
  const int64_t size = DTypeBytes(value.dtype);
  ASSIGN_OR_RETURN(const int64_t offset, Value(value.offset));
  TensorRef view{.dtype = value.dtype};
  for (size_t d = 0; d < value.dims.size(); ++d) {
    ASSIGN_OR_RETURN(const int64_t extent, Value(value.dims[d]));
    ASSIGN_OR_RETURN(const int64_t stride, Value(value.strides[d]));
    if (extent < 0) return std::unexpected(Outside(index, storage.bytes).error());
    view.dims.push_back(extent);
    view.strides.push_back(stride);
  }
  view.data = storage.data;
  if (std::ranges::count(view.dims, 0) > 0) return view;
  int64_t low = offset, high = offset;
  for (int d = 0; d < view.rank(); ++d) {
    const auto span = CheckedMul(view.dims[d] - 1, view.strides[d]);
    const auto moved = span ? CheckedAdd(*span < 0 ? low : high, *span) : std::nullopt;
    if (!moved) return std::unexpected(Outside(index, storage.bytes).error());
    (*span < 0 ? low : high) = *moved;
  }
  if (low < 0 || high >= storage.bytes / size) return std::unexpected(Outside(index, storage.bytes).error());
  view.data = static_cast<char*>(storage.data) + offset * size;
  return view;
}

Status PlanRun::Run() {
  // As for workers: the other dims of empty outputs may be as large as any.
  if (std::ranges::all_of(outputs_, [](const TensorRef& output) { return output.bytes() == 0; })) return {};
  for (size_t s = 0; s < plan_.steps.size(); ++s) {
    const PlanStep& step = plan_.steps[s];
    const auto* kernel = std::get_if<KernelStep>(&step.step);
    const Status ran =
        kernel != nullptr ? RunKernel(*kernel, scratch_[s].data) : RunReference(std::get<ReferenceStep>(step.step));
    if (!ran.has_value()) return FailIn("step " + std::to_string(s) + " (" + step.label + ")", ran.error());
    RETURN_IF_ERROR(CheckFronts(s));
  }
  return {};
}

Status PlanRun::CheckFronts(size_t step) const {
  for (const auto& memory : memory_)
    if (!std::ranges::all_of(memory->before(), [](uint8_t byte) { return byte == kUnwritten; }))
      return Fail(ErrorCode::kIntegrityFailure, "step " + std::to_string(step) + " (" + plan_.steps[step].label +
                                                    ") wrote before the first element of a storage");
  return {};
}

Status PlanRun::RunKernel(const KernelStep& step, void* scratch) const {
  std::vector<void*> pointers;
  for (const int32_t value : step.pointers) pointers.push_back(views_[static_cast<size_t>(value)].data);
  std::vector<int64_t> dims;
  for (const Dim dim : step.dims) {
    ASSIGN_OR_RETURN(const int64_t extent, Value(dim));
    dims.push_back(extent);
  }
  ASSIGN_OR_RETURN(const int64_t range, Value(step.range));
  const KilnKernelArgs args{pointers.data(), dims.data(), scratch};
  const KilnKernel entry = code_.entry(static_cast<size_t>(step.kernel));
  const int64_t middle = form_.in_halves ? range / 2 : 0;
  if (middle > 0) entry(&args, 0, middle);
  if (range > middle) entry(&args, middle, range);
  return {};
}

Status PlanRun::RunReference(const ReferenceStep& step) const {
  const auto view = [&](int32_t value) { return value < 0 ? TensorRef{} : views_[static_cast<size_t>(value)]; };
  std::vector<TensorRef> inputs, outputs;
  for (const int32_t input : step.inputs) inputs.push_back(view(input));
  for (const int32_t output : step.outputs) outputs.push_back(view(output));
  if (step.op == TensorOp::kShapeVector) {
    const std::span<const Dim> dims = step.attributes.Dims("dims");
    if (outputs[0].data == nullptr || outputs[0].dtype != DType::kI64 || !outputs[0].IsContiguous() ||
        outputs[0].elements() != static_cast<int64_t>(dims.size()))
      return Fail(ErrorCode::kIntegrityFailure, "sizes are written to what does not hold them");
    for (size_t i = 0; i < dims.size(); ++i) {
      ASSIGN_OR_RETURN(outputs[0].as<int64_t>()[i], Value(dims[i]));
    }
    return {};
  }
  StepMemory memory;
  KernelCall call{step.op, &step.attributes, {}, inputs, outputs, &memory};
  if (OpInfo(step.op).family == OpFamily::kView) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].data == nullptr) continue;
      ASSIGN_OR_RETURN(const std::optional<TensorRef> of_input, MakeView(call, static_cast<int>(i), outputs[i].dims));
      if (!of_input) return Fail(ErrorCode::kIntegrityFailure, "a view step without a view");
      CopyElements(*of_input, outputs[i]);
    }
    return {};
  }
  const size_t typed = step.op == TensorOp::kWhere ? 1 : 0;
  if (inputs.size() <= typed) return Fail(ErrorCode::kIntegrityFailure, "a reference step has no input");
  ASSIGN_OR_RETURN(const ReferenceKernel kernel, FindReferenceKernel(step.op, inputs[typed].dtype));
  for (TensorRef& input : inputs) {
    if (kernel.strided_inputs || input.data == nullptr || input.IsContiguous()) continue;
    const TensorRef copy = MakeRef(input.dtype, input.dims, memory.AllocateScratch(static_cast<size_t>(input.bytes())));
    CopyElements(input, copy);
    input = copy;
  }
  const std::shared_ptr<const void> prepared = kernel.prepare ? kernel.prepare(step.attributes) : nullptr;
  call.prepared = prepared.get();
  return IsEmptyCall(call) ? Status() : kernel.run(call);
}

}  // namespace kiln
