#include "vm-worker/dispatch/plan_instance.h"

#include <algorithm>

#include "common/base/checked_math.h"
#include "common/base/stopwatch.h"
#include "vm-worker/dispatch/plan_blocks.h"

namespace kiln {
namespace {

constexpr int64_t kArenaAlignment = 64;

}  // namespace

struct PlanInstance::Places {
  // The base table: inputs, outputs, weights, packed weights, arena.
  size_t first_output, first_weight, first_packed, arena;
  BufferPlaces buffers;
};

Result<std::unique_ptr<PlanInstance>> PlanInstance::Instantiate(std::shared_ptr<const LinkedPlan> linked,
                                                                std::span<const int64_t> symbol_values) {
  if (linked->on_device()) return Fail(ErrorCode::kInternal, "a device's plan has no instance on the processor");
  const Plan& plan = linked->plan();
  std::unique_ptr<PlanInstance> instance(new PlanInstance());
  instance->linked_ = linked;

  ASSIGN_OR_RETURN(EvaluatedPlan evaluated, EvaluatePlan(*linked, symbol_values));
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

  std::vector<TensorRef> views;
  std::vector<Address> addresses;
  for (EvaluatedValue& value : evaluated.values) {
    const Address address = AddressOf(value, places);
    if (void* known = bases[static_cast<size_t>(address.base)]; known != nullptr)
      value.view.data = static_cast<char*>(known) + address.offset;
    views.push_back(value.view);
    addresses.push_back(address);
  }
  instance->outputs_ = std::move(evaluated.outputs);
  instance->is_empty_ = evaluated.is_empty;
  instance->scratch_offset_ = places.buffers.arena_bytes;
  instance->arena_bytes_ = places.buffers.arena_bytes;
  RETURN_IF_ERROR(instance->BuildSteps(symbol_values, views, addresses));
  return instance;
}

PlanInstance::Address PlanInstance::AddressOf(const EvaluatedValue& value, const Places& places) {
  const auto index = static_cast<size_t>(value.index);
  switch (value.storage) {
    case StorageKind::kInput:
      return {value.index, value.offset};
    case StorageKind::kOutput:
      return {static_cast<int32_t>(places.first_output + index), value.offset};
    case StorageKind::kWeight:
      return {static_cast<int32_t>(places.first_weight + index), value.offset};
    case StorageKind::kPrepacked:
      return {static_cast<int32_t>(places.first_packed + index), value.offset};
    case StorageKind::kArena:
      return {static_cast<int32_t>(places.arena), places.buffers.offsets[index] + value.offset};
  }
  return {-1, 0};
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
  ASSIGN_OR_RETURN(const EvaluatedKernel evaluated, EvaluateKernel(plan, step, symbol_values));
  KernelCallStep call{};
  call.entry = linked_->code().entry(static_cast<size_t>(kernel.kernel));
  call.first_pointer = static_cast<int32_t>(addresses_.size());
  call.pointers = static_cast<int32_t>(kernel.pointers.size());
  for (int32_t value : kernel.pointers) addresses_.push_back(addresses[static_cast<size_t>(value)]);
  call.first_dim = static_cast<int32_t>(dims_.size());
  dims_.insert(dims_.end(), evaluated.dims.begin(), evaluated.dims.end());
  call.range = evaluated.range;
  call.scratch_bytes = evaluated.scratch_bytes;
  call.cost = evaluated.cost;
  // Scratch belongs to one thread, and the arena holds it once.
  const bool pooled = call.scratch_bytes == 0 && call.cost >= kPooledOperationsMin;
  call.parts_max = pooled ? std::max<int64_t>(1, call.cost / kPartOperationsMin) : 1;
  kernels_.push_back(call);
  return {};
}

Status PlanInstance::AddReference(size_t step, std::span<const int64_t> symbol_values, std::span<TensorRef> values,
                                  std::span<const Address> addresses) {
  const auto& node = std::get<ReferenceStep>(linked_->plan().steps[step].step);
  const auto first_value = static_cast<int32_t>(addresses_.size());
  for (const std::vector<int32_t>* list : {&node.inputs, &node.outputs})
    for (int32_t value : *list)
      addresses_.push_back(value < 0 ? Address{-1, 0} : addresses[static_cast<size_t>(value)]);
  ASSIGN_OR_RETURN(ReferenceCall call, MakeReferenceCall(*linked_, step, symbol_values, values));
  references_.push_back({first_value, std::move(call)});
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
      ReferenceCallStep& reference = references_[static_cast<size_t>(step.index)];
      RETURN_IF_ERROR(
          RunReference(*linked_, reference.call, pointer_table_.data() + reference.first_value, *call.memory));
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
                                             reference.call.inputs.size() + reference.call.outputs.size()));
  }
}

int64_t PlanInstance::bytes() const {
  return static_cast<int64_t>(sizeof(*this) + addresses_.size() * (sizeof(Address) + sizeof(void*)) + dims_.size() * 8 +
                              steps_.size() * sizeof(Step) + kernels_.size() * sizeof(KernelCallStep) +
                              references_.size() * sizeof(ReferenceCallStep));
}

}  // namespace kiln
