#include "vm-worker/dispatch/plan_instance.h"

#include <algorithm>
#include <numeric>

#include "common/base/checked_math.h"
#include "common/base/stopwatch.h"
#include "common/ops/empty_call.h"
#include "common/segment/shape_rule.h"
#include "vm-worker/dispatch/plan_blocks.h"
#include "vm-worker/dispatch/step_shapes.h"

namespace kiln {
namespace {

constexpr int64_t kArenaAlignment = 64;

// Evaluates a list of Dims; the error says what was evaluated.
Result<Dims> EvaluateDims(const SymbolTable& symbols, const std::vector<Dim>& list, std::span<const int64_t> values) {
  if (list.size() > static_cast<size_t>(limits::kRankMax))
    return Fail(ErrorCode::kMalformed,
                "rank " + std::to_string(list.size()) + " exceeds " + std::to_string(limits::kRankMax));
  Dims dims;
  for (Dim dim : list) {
    ASSIGN_OR_RETURN(int64_t value, symbols.Evaluate(dim, values));
    dims.push_back(value);
  }
  return dims;
}

// Lowest and highest element offset a view touches, relative to its offset; nullopt on overflow. Empty views touch
// nothing.
struct Reach {
  int64_t low = 0, high = 0;
  bool empty = false;
};
std::optional<Reach> ReachOf(const Dims& dims, const Dims& strides) {
  Reach reach;
  for (int d = 0; d < dims.rank(); ++d) {
    if (dims[d] < 0) return std::nullopt;
    if (dims[d] == 0) reach.empty = true;
  }
  if (reach.empty) return reach;
  for (int d = 0; d < dims.rank(); ++d) {
    const auto span = CheckedMul(dims[d] - 1, strides[d]);
    if (!span) return std::nullopt;
    const auto moved = CheckedAdd(*span < 0 ? reach.low : reach.high, *span);
    if (!moved) return std::nullopt;
    (*span < 0 ? reach.low : reach.high) = *moved;
  }
  return reach;
}

Status CheckInside(const TensorRef& view, int64_t offset, int64_t storage_bytes, size_t index) {
  const auto reach = ReachOf(view.dims, view.strides);
  if (!reach)
    return Fail(ErrorCode::kLimitExceeded, "plan value " + std::to_string(index) + " overflows 64-bit addressing");
  if (reach->empty) return {};
  const auto low = CheckedAdd(offset, reach->low), high = CheckedAdd(offset, reach->high);
  const int64_t elements = storage_bytes / DTypeBytes(view.dtype);
  if (!low || !high || *low < 0 || *high >= elements)
    return Fail(ErrorCode::kIntegrityFailure, "plan value " + std::to_string(index) +
                                                  " reaches outside its storage of " + std::to_string(elements) +
                                                  " elements; the plan is not used");
  return {};
}

}  // namespace

struct PlanInstance::Places {
  // The base table: inputs, outputs, weights, packed weights, arena.
  size_t first_output, first_weight, first_packed, arena;
  BufferPlaces buffers;
};

Result<std::unique_ptr<PlanInstance>> PlanInstance::Instantiate(std::shared_ptr<const LinkedPlan> linked,
                                                                std::span<const int64_t> symbol_values) {
  const Plan& plan = linked->plan();
  std::unique_ptr<PlanInstance> instance(new PlanInstance());
  instance->linked_ = linked;

  Places places;
  ASSIGN_OR_RETURN(places.buffers, PlaceBuffers(plan, symbol_values));
  places.first_output = static_cast<size_t>(linked->segment().runtime_inputs);
  places.first_weight = places.first_output + plan.outputs.size();
  places.first_packed = places.first_weight + linked->weights().size();
  places.arena = places.first_packed + plan.recipes.size();

  std::vector<void*>& bases = instance->bases_;
  bases.assign(places.arena + 1, nullptr);
  for (size_t i = 0; i < linked->weights().size(); ++i) bases[places.first_weight + i] = linked->weights()[i].data;
  for (size_t i = 0; i < plan.recipes.size(); ++i) bases[places.first_packed + i] = linked->packed(i).ref.data;

  RETURN_IF_ERROR(instance->AddOutputs(symbol_values));

  std::vector<TensorRef> views;
  std::vector<Address> addresses;
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const PlanValue& value = plan.values[i];
    TensorRef view;
    view.dtype = value.dtype;
    ASSIGN_OR_RETURN(view.dims, EvaluateDims(plan.symbols, value.dims, symbol_values));
    ASSIGN_OR_RETURN(view.strides, EvaluateDims(plan.symbols, value.strides, symbol_values));
    ASSIGN_OR_RETURN(int64_t offset, plan.symbols.Evaluate(value.offset, symbol_values));
    ASSIGN_OR_RETURN(const Storage storage, instance->StorageOf(value, places, symbol_values));
    RETURN_IF_ERROR(CheckInside(view, offset, storage.bytes, i));
    const bool empty = view.elements() == 0;
    const Address address{storage.base, empty ? storage.start : storage.start + offset * DTypeBytes(view.dtype)};
    if (void* known = bases[static_cast<size_t>(address.base)]; known != nullptr)
      view.data = static_cast<char*>(known) + address.offset;
    views.push_back(view);
    addresses.push_back(address);
  }
  instance->scratch_offset_ = places.buffers.arena_bytes;
  instance->arena_bytes_ = places.buffers.arena_bytes;
  RETURN_IF_ERROR(instance->BuildSteps(symbol_values, views, addresses));
  return instance;
}

Result<PlanInstance::Storage> PlanInstance::StorageOf(const PlanValue& value, const Places& places,
                                                      std::span<const int64_t> symbol_values) const {
  const size_t index = static_cast<size_t>(value.index);
  switch (value.storage) {
    case StorageKind::kInput: {
      const Segment& segment = linked_->segment();
      const TensorDesc& desc = segment.input(value.index);
      ASSIGN_OR_RETURN(const Dims dims, EvaluateDims(segment.body.symbols, *desc.dims, symbol_values));
      ASSIGN_OR_RETURN(int64_t elements, CheckedElements(dims, desc.dtype));
      return Storage{value.index, 0, elements * DTypeBytes(desc.dtype)};
    }
    case StorageKind::kOutput:
      return Storage{static_cast<int32_t>(places.first_output + index), 0, outputs_[index].bytes};
    case StorageKind::kWeight:
      return Storage{static_cast<int32_t>(places.first_weight + index), 0, linked_->weights()[index].bytes()};
    case StorageKind::kPrepacked:
      return Storage{static_cast<int32_t>(places.first_packed + index), 0, linked_->packed(index).ref.bytes()};
    case StorageKind::kArena:
      return Storage{static_cast<int32_t>(places.arena), places.buffers.offsets[index], places.buffers.bytes[index]};
  }
  return Fail(ErrorCode::kInternal, "a plan value lies in no storage");
}

// The shapes of the outputs; they must be the segment's.
Status PlanInstance::AddOutputs(std::span<const int64_t> symbol_values) {
  const Plan& plan = linked_->plan();
  const Program& body = linked_->segment().body;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const PlanValue& value = plan.values[static_cast<size_t>(plan.outputs[i])];
    const TensorDesc& desc = body.entry().values[static_cast<size_t>(body.entry().regions[0].outputs[i])].desc;
    ASSIGN_OR_RETURN(Dims dims, EvaluateDims(plan.symbols, value.dims, symbol_values));
    for (int d = 0; d < (desc.has_rank() ? dims.rank() : 0); ++d) {
      ASSIGN_OR_RETURN(const std::optional<int64_t> wanted,
                       EvaluateInFrame(body.symbols, (*desc.dims)[static_cast<size_t>(d)], symbol_values));
      if (wanted && *wanted != dims[d])
        return Fail(ErrorCode::kIntegrityFailure, "plan output " + std::to_string(i) + " is " + dims.ToString() +
                                                      ", the segment's is " + ToString(desc, body.symbols) +
                                                      "; the plan is not used");
    }
    ASSIGN_OR_RETURN(int64_t elements, CheckedElements(dims, value.dtype));
    outputs_.push_back({MakeRef(value.dtype, dims, nullptr), elements * DTypeBytes(value.dtype)});
  }
  is_empty_ = std::ranges::all_of(outputs_, [](const Output& output) { return output.bytes == 0; });
  return {};
}

Status PlanInstance::BuildSteps(std::span<const int64_t> symbol_values, std::span<TensorRef> values,
                                std::span<const Address> addresses) {
  const Plan& plan = linked_->plan();
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const bool is_kernel = std::holds_alternative<KernelStep>(plan.steps[s].step);
    RETURN_IF_ERROR(is_kernel ? AddKernel(s, symbol_values, addresses)
                              : AddReference(s, symbol_values, values, addresses));
    const size_t count = is_kernel ? kernels_.size() : references_.size();
    steps_.push_back({is_kernel, static_cast<int32_t>(count) - 1});
  }
  pointer_table_.assign(addresses_.size(), nullptr);
  int64_t scratch = 0;
  for (const KernelCallStep& kernel : kernels_) scratch = std::max(scratch, kernel.scratch_bytes);
  arena_bytes_ = RoundUp(scratch_offset_ + scratch, kArenaAlignment);
  return {};
}

Status PlanInstance::AddKernel(size_t step, std::span<const int64_t> symbol_values,
                               std::span<const Address> addresses) {
  const Plan& plan = linked_->plan();
  const auto& kernel = std::get<KernelStep>(plan.steps[step].step);
  KernelCallStep call{};
  call.entry = linked_->code().entry(static_cast<size_t>(kernel.kernel));
  call.first_pointer = static_cast<int32_t>(addresses_.size());
  call.pointers = static_cast<int32_t>(kernel.pointers.size());
  for (int32_t value : kernel.pointers) addresses_.push_back(addresses[static_cast<size_t>(value)]);
  call.first_dim = static_cast<int32_t>(dims_.size());
  for (Dim dim : kernel.dims) {
    ASSIGN_OR_RETURN(int64_t extent, plan.symbols.Evaluate(dim, symbol_values));
    dims_.push_back(extent);
  }
  ASSIGN_OR_RETURN(call.range, plan.symbols.Evaluate(kernel.range, symbol_values));
  ASSIGN_OR_RETURN(call.scratch_bytes, plan.symbols.Evaluate(kernel.scratch_bytes, symbol_values));
  if (call.scratch_bytes < 0 || call.scratch_bytes > limits::kTensorBytesMax)
    return Fail(ErrorCode::kLimitExceeded,
                "step " + std::to_string(step) + " wants " + std::to_string(call.scratch_bytes) + " bytes of scratch");
  ASSIGN_OR_RETURN(call.cost, plan.symbols.Evaluate(kernel.cost, symbol_values));
  // Scratch belongs to one thread, and the arena holds it once.
  const bool pooled = call.scratch_bytes == 0 && call.cost >= kPooledOperationsMin;
  call.parts_max = pooled ? std::max<int64_t>(1, call.cost / kPartOperationsMin) : 1;
  kernels_.push_back(call);
  return {};
}

Status PlanInstance::AddReference(size_t step, std::span<const int64_t> symbol_values, std::span<TensorRef> values,
                                  std::span<const Address> addresses) {
  const Plan& plan = linked_->plan();
  const auto& node = std::get<ReferenceStep>(plan.steps[step].step);
  ReferenceCallStep call;
  call.plan_step = static_cast<int32_t>(step);
  call.first_value = static_cast<int32_t>(addresses_.size());
  std::vector<const TensorRef*> inputs, outputs;
  const auto add = [&](int32_t value, std::vector<TensorRef>& views, std::vector<const TensorRef*>& pointers) {
    pointers.push_back(value < 0 ? nullptr : &values[static_cast<size_t>(value)]);
    views.push_back(value < 0 ? TensorRef{} : values[static_cast<size_t>(value)]);
    addresses_.push_back(value < 0 ? Address{-1, 0} : addresses[static_cast<size_t>(value)]);
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
    values[static_cast<size_t>(node.outputs[0])].data = call.shape.data();
  } else {
    RETURN_IF_ERROR(CheckStepShapes(node, inputs, outputs));
  }
  const ReferenceKernel& kernel = linked_->reference(step).kernel;
  const auto is_strided = [](const TensorRef& input) { return !input.IsContiguous(); };
  if (kernel.run != nullptr && !kernel.strided_inputs && std::ranges::any_of(call.inputs, is_strided)) {
    call.dense = call.inputs;
    for (TensorRef& input : call.dense) input.strides = ContiguousStrides(input.dims);
  }
  references_.push_back(std::move(call));
  return {};
}

Status PlanInstance::Run(const PlanCall& call) {
  // As for one call: the other dims of empty outputs may be as large as any.
  if (is_empty_) return {};
  size_t base = 0;
  for (const TensorRef& input : call.inputs) bases_[base++] = input.data;
  for (void* output : call.outputs) bases_[base++] = output;
  bases_.back() = call.arena;
  for (size_t i = 0; i < addresses_.size(); ++i) {
    const Address address = addresses_[i];
    pointer_table_[i] =
        address.base < 0 ? nullptr : static_cast<char*>(bases_[static_cast<size_t>(address.base)]) + address.offset;
  }
  void* scratch = static_cast<char*>(call.arena) + scratch_offset_;
  const Clock& clock = Stopwatch();
  int64_t unlooked = 0;  // operations since the last look at the deadline
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step step = steps_[s];
    if (unlooked >= kLookOperations && call.deadline_ns != 0) {
      if (SystemClock().NowNs() > call.deadline_ns)
        return Fail(ErrorCode::kDeadlineExceeded, "the plan was still running when the deadline passed");
      unlooked = 0;
    }
    const bool watched = call.timing != nullptr || call.watcher != nullptr;
    const bool timed = watched || (!step.is_kernel && call.reference_ns != nullptr);
    const int64_t start = timed ? clock.NowNs() : 0;
    if (step.is_kernel) {
      const KernelCallStep& kernel = kernels_[static_cast<size_t>(step.index)];
      const KilnKernelArgs args{pointer_table_.data() + kernel.first_pointer, dims_.data() + kernel.first_dim, scratch};
      unlooked += std::min(kernel.cost, kLookOperations);
      if (call.pool != nullptr && kernel.parts_max > 1) {
        call.pool->Run(kernel.entry, args, kernel.range, kernel.parts_max);
      } else if (kernel.range > 0) {
        kernel.entry(&args, 0, kernel.range);
      }
    } else {
      unlooked = kLookOperations;
      RETURN_IF_ERROR(RunReference(references_[static_cast<size_t>(step.index)], call));
    }
    if (!timed) continue;
    if (!step.is_kernel && call.reference_ns != nullptr) *call.reference_ns += clock.NowNs() - start;
    if (watched) Watch(s, call, start);
  }
  return {};
}

void PlanInstance::Watch(size_t s, const PlanCall& call, int64_t start_ns) const {
  if (call.timing != nullptr) call.timing->step_ns[s] += Stopwatch().NowNs() - start_ns;
  if (call.watcher == nullptr) return;
  const Step step = steps_[s];
  const auto index = static_cast<size_t>(step.index);
  const std::span<void* const> table(pointer_table_);
  if (step.is_kernel) {
    call.watcher->AfterStep(s, table.subspan(static_cast<size_t>(kernels_[index].first_pointer),
                                             static_cast<size_t>(kernels_[index].pointers)));
  } else {
    const ReferenceCallStep& reference = references_[index];
    call.watcher->AfterStep(s, table.subspan(static_cast<size_t>(reference.first_value),
                                             reference.inputs.size() + reference.outputs.size()));
  }
}

Status PlanInstance::RunReference(ReferenceCallStep& step, const PlanCall& call) {
  const auto& node = std::get<ReferenceStep>(linked_->plan().steps[static_cast<size_t>(step.plan_step)].step);
  void* const* pointers = pointer_table_.data() + step.first_value;
  for (TensorRef& input : step.inputs) input.data = *pointers++;
  for (TensorRef& output : step.outputs) output.data = *pointers++;
  if (node.op == TensorOp::kShapeVector) {
    std::copy(step.shape.begin(), step.shape.end(), step.outputs[0].as<int64_t>());
    return {};
  }
  for (size_t i = 0; i < step.dense.size(); ++i) {
    const TensorRef& input = step.inputs[i];
    TensorRef& dense = step.dense[i];
    dense.data = input.data;
    if (input.data == nullptr || input.IsContiguous()) continue;
    dense.data = call.memory->AllocateScratch(static_cast<size_t>(input.bytes()));
    if (dense.data == nullptr)
      return Fail(ErrorCode::kResourceExhausted, "no memory for a contiguous copy of an operand");
    CopyElements(input, dense);
  }
  KernelCall kernel_call{node.op,      &node.attributes, {},     step.dense.empty() ? step.inputs : step.dense,
                         step.outputs, call.memory,      nullptr};
  if (OpInfo(node.op).family == OpFamily::kView) {
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      ASSIGN_OR_RETURN(std::optional<TensorRef> view, MakeView(kernel_call, static_cast<int>(i), step.outputs[i].dims));
      if (!view) return Fail(ErrorCode::kInternal, "view step without a view");
      CopyElements(*view, step.outputs[i]);
    }
    return {};
  }
  const LinkedPlan::Reference& reference = linked_->reference(static_cast<size_t>(step.plan_step));
  kernel_call.prepared = reference.prepared.get();
  Status status = IsEmptyCall(kernel_call) ? Status() : reference.kernel.run(kernel_call);
  if (!status.has_value()) return FailIn(OpInfo(node.op).name, status.error());
  return {};
}

int64_t PlanInstance::bytes() const {
  return static_cast<int64_t>(sizeof(*this) + addresses_.size() * (sizeof(Address) + sizeof(void*)) + dims_.size() * 8 +
                              steps_.size() * sizeof(Step) + kernels_.size() * sizeof(KernelCallStep) +
                              references_.size() * sizeof(ReferenceCallStep));
}

}  // namespace kiln
