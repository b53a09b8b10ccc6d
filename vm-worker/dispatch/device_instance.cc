#include "vm-worker/dispatch/device_instance.h"

#include <algorithm>

#include "common/base/stopwatch.h"

namespace kiln {
namespace {

// What nobody has written: no number in any float dtype, and -1 in integers.
constexpr uint8_t kUnwritten = 0xff;

}  // namespace

Result<std::unique_ptr<DeviceInstance>> DeviceInstance::Instantiate(std::shared_ptr<const LinkedPlan> linked,
                                                                    std::span<const int64_t> symbol_values,
                                                                    DeviceTrust trust) {
  if (!linked->on_device()) return Fail(ErrorCode::kInternal, "a processor's plan has no instance on a device");
  std::unique_ptr<DeviceInstance> instance(new DeviceInstance());
  instance->trust_ = trust;
  ASSIGN_OR_RETURN(EvaluatedPlan evaluated, EvaluatePlan(*linked, symbol_values));
  ASSIGN_OR_RETURN(instance->layout_, LayOutOnDevice(*linked, evaluated, trust == DeviceTrust::kUnproven));
  const Plan& plan = linked->plan();
  instance->linked_ = std::move(linked);
  std::vector<void*>& bases = instance->bases_;
  bases.assign(evaluated.input_bytes.size() + plan.outputs.size() + 1, nullptr);
  for (const TensorRef& weight : instance->linked_->weights()) bases.push_back(weight.data);
  const StepReads by_host = ReadsOf(plan, false);
  for (size_t i = 0; i < plan.recipes.size(); ++i)
    bases.push_back(by_host.recipes[i] ? instance->linked_->packed(i).ref.data : nullptr);
  RETURN_IF_ERROR(instance->BuildSteps(evaluated, symbol_values));
  instance->outputs_ = std::move(evaluated.outputs);
  instance->is_empty_ = evaluated.is_empty;
  return instance;
}

DeviceInstance::HostAddress DeviceInstance::HostAddressOfStorage(int32_t storage) const {
  const auto fixed = static_cast<int32_t>(linked_->segment().runtime_inputs + linked_->plan().outputs.size());
  if (storage < fixed) return {storage, 0};
  const int64_t offset = layout_.storages[static_cast<size_t>(storage)].host_offset;
  return offset < 0 ? HostAddress{-1, 0} : HostAddress{fixed, offset};
}

DeviceInstance::HostAddress DeviceInstance::HostAddressOf(const EvaluatedValue& value) const {
  if (const int32_t storage = StorageIndex(*linked_, value); storage >= 0) {
    HostAddress address = HostAddressOfStorage(storage);
    address.offset += value.offset;
    return address;
  }
  const auto first_weight =
      static_cast<int32_t>(linked_->segment().runtime_inputs + linked_->plan().outputs.size() + 1);
  const auto first_packed = first_weight + static_cast<int32_t>(linked_->weights().size());
  return {(value.storage == StorageKind::kWeight ? first_weight : first_packed) + value.index, value.offset};
}

void* DeviceInstance::Resolve(HostAddress address) const {
  if (address.base < 0) return nullptr;
  auto* base = static_cast<char*>(bases_[static_cast<size_t>(address.base)]);
  return base == nullptr ? nullptr : base + address.offset;
}

Status DeviceInstance::BuildSteps(const EvaluatedPlan& evaluated, std::span<const int64_t> symbol_values) {
  const Plan& plan = linked_->plan();
  std::vector<TensorRef> views;
  for (const EvaluatedValue& value : evaluated.values) {
    views.push_back(value.view);
    views.back().data = Resolve(HostAddressOf(value));  // what is known before a call: weights
  }
  size_t operands = 0;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const auto* node = std::get_if<ReferenceStep>(&plan.steps[s].step);
    index_of_.push_back(static_cast<int32_t>(node == nullptr ? launches_.size() : references_.size()));
    if (node == nullptr) {
      RETURN_IF_ERROR(AddLaunch(s, evaluated, symbol_values));
      continue;
    }
    ASSIGN_OR_RETURN(ReferenceCall call, MakeReferenceCall(*linked_, s, symbol_values, views));
    references_.push_back({addresses_.size(), std::move(call)});
    for (const std::vector<int32_t>* list : {&node->inputs, &node->outputs})
      for (int32_t value : *list)
        addresses_.push_back(value < 0 ? HostAddress{-1, 0}
                                       : HostAddressOf(evaluated.values[static_cast<size_t>(value)]));
    operands = std::max(operands, node->inputs.size() + node->outputs.size());
  }
  pointers_.assign(operands, nullptr);
  return {};
}

Status DeviceInstance::AddLaunch(size_t step, const EvaluatedPlan& evaluated, std::span<const int64_t> symbol_values) {
  const Plan& plan = linked_->plan();
  const auto& kernel = std::get<KernelStep>(plan.steps[step].step);
  ASSIGN_OR_RETURN(const EvaluatedKernel numbers, EvaluateKernel(plan, step, symbol_values));
  const DevicePart& part = linked_->device();
  launches_.push_back({&(*part.kernels)[static_cast<size_t>(kernel.kernel)], words_.size(), numbers.range});
  for (int32_t index : kernel.pointers) {
    const EvaluatedValue& value = evaluated.values[static_cast<size_t>(index)];
    if (const int32_t storage = StorageIndex(*linked_, value); storage >= 0) {
      patches_.push_back({words_.size(), layout_.storages[static_cast<size_t>(storage)].device_offset + value.offset});
      words_.push_back(0);
      continue;
    }
    const auto& blocks = value.storage == StorageKind::kWeight ? part.weights : part.packed;
    const auto& block = blocks[static_cast<size_t>(value.index)];
    words_.push_back(block == nullptr ? 0 : static_cast<int64_t>(block->address()) + value.offset);
  }
  // A parameter list has at least one of each.
  if (kernel.pointers.empty()) words_.push_back(0);
  words_.insert(words_.end(), numbers.dims.begin(), numbers.dims.end());
  if (numbers.dims.empty()) words_.push_back(0);
  return {};
}

Status DeviceInstance::Run(DeviceLane& lane, const DeviceCall& call) {
  if (is_empty_) return {};
  RETURN_IF_ERROR(lane.Reserve(layout_.device_bytes));
  RETURN_IF_ERROR(lane.Begin(linked_->key(), trust_ == DeviceTrust::kUnproven));
  Status status = RunActions(lane, call);
  if (!status.has_value()) {
    lane.End(true, linked_->shared_from_this());
    if (status.error().code == ErrorCode::kInternal) linked_->device().refusal->Note(status.error().message);
    return status;
  }
  lane.End(false, nullptr);
  return status;
}

Status DeviceInstance::RunActions(DeviceLane& lane, const DeviceCall& call) {
  size_t base = 0;
  for (const TensorRef& input : call.inputs) bases_[base++] = input.data;
  for (void* output : call.outputs) bases_[base++] = output;
  bases_[base] = call.arena;
  if (const cuda::Pointer arena = lane.arena(); arena != patched_for_) {
    for (const Patch& patch : patches_) words_[patch.word] = static_cast<int64_t>(arena) + patch.offset;
    patched_for_ = arena;
  }
  const bool unproven = trust_ == DeviceTrust::kUnproven;
  if (unproven) RETURN_IF_ERROR(lane.Fill(lane.arena(), kUnwritten, layout_.device_bytes));
  for (const DeviceAction action : layout_.actions) {
    const auto index = static_cast<size_t>(action.index);
    switch (action.kind) {
      case DeviceAction::Kind::kUpload: {
        const DeviceLayout::Storage& storage = layout_.storages[index];
        RETURN_IF_ERROR(lane.Upload(lane.arena() + static_cast<cuda::Pointer>(storage.device_offset),
                                    Resolve(HostAddressOfStorage(action.index)), storage.bytes));
        break;
      }
      case DeviceAction::Kind::kDownload: {
        const DeviceLayout::Storage& storage = layout_.storages[index];
        RETURN_IF_ERROR(lane.Download(Resolve(HostAddressOfStorage(action.index)),
                                      lane.arena() + static_cast<cuda::Pointer>(storage.device_offset), storage.bytes));
        break;
      }
      case DeviceAction::Kind::kWait:
        // A copy to the host's memory is never left under way: that memory is somebody else's after the call.
        RETURN_IF_ERROR(lane.Wait(action.index == DeviceAction::kForKernels ? call.deadline_ns : 0));
        break;
      case DeviceAction::Kind::kLaunch: {
        const Launch& launch = launches_[static_cast<size_t>(index_of_[index])];
        const int64_t start = call.timing != nullptr ? Stopwatch().NowNs() : 0;
        RETURN_IF_ERROR(lane.Launch(*launch.kernel, &words_[launch.first_word], launch.range));
        if (call.timing == nullptr) break;
        RETURN_IF_ERROR(lane.Wait(call.deadline_ns));
        call.timing->step_ns[index] += Stopwatch().NowNs() - start;
        break;
      }
      case DeviceAction::Kind::kReference:
        RETURN_IF_ERROR(RunReferenceStep(index, call));
        break;
    }
  }
  return unproven ? CheckGaps(lane) : Status();
}

Status DeviceInstance::RunReferenceStep(size_t step, const DeviceCall& call) {
  Reference& reference = references_[static_cast<size_t>(index_of_[step])];
  const size_t operands = reference.call.inputs.size() + reference.call.outputs.size();
  for (size_t i = 0; i < operands; ++i) pointers_[i] = Resolve(addresses_[reference.first_address + i]);
  const bool timed = call.timing != nullptr || call.reference_ns != nullptr;
  const int64_t start = timed ? Stopwatch().NowNs() : 0;
  RETURN_IF_ERROR(RunReference(*linked_, reference.call, pointers_.data(), *call.memory));
  if (!timed) return {};
  const int64_t took = Stopwatch().NowNs() - start;
  if (call.timing != nullptr) call.timing->step_ns[step] += took;
  if (call.reference_ns != nullptr) *call.reference_ns += took;
  return {};
}

// A write beside a buffer is met here if it went at most so far; a read from there made the results no numbers.
Status DeviceInstance::CheckGaps(DeviceLane& lane) const {
  std::vector<uint8_t> bytes;
  for (const DeviceLayout::Gap& gap : layout_.gaps) {
    bytes.assign(static_cast<size_t>(gap.bytes), 0);
    RETURN_IF_ERROR(lane.Download(bytes.data(), lane.arena() + static_cast<cuda::Pointer>(gap.offset), gap.bytes));
    RETURN_IF_ERROR(lane.Wait(0));
    if (std::ranges::any_of(bytes, [](uint8_t byte) { return byte != kUnwritten; }))
      return Fail(ErrorCode::kIntegrityFailure, "a kernel of the plan wrote outside its buffers on the device");
  }
  return {};
}

int64_t DeviceInstance::bytes() const {
  return static_cast<int64_t>(sizeof(*this) + layout_.storages.size() * sizeof(DeviceLayout::Storage) +
                              layout_.actions.size() * sizeof(DeviceAction) + index_of_.size() * sizeof(int32_t) +
                              launches_.size() * sizeof(Launch) + references_.size() * sizeof(Reference) +
                              words_.size() * 8 + patches_.size() * sizeof(Patch) +
                              addresses_.size() * sizeof(HostAddress) + bases_.size() * sizeof(void*));
}

}  // namespace kiln
