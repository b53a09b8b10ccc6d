#include "vm-worker/dispatch/device_layout.h"

#include <algorithm>

#include "common/base/checked_math.h"
#include "vm-worker/interp/arena_packing.h"

namespace kiln {
namespace {

// Walks the steps once for who touches what, and once for what has to be where.
class Planner {
 public:
  Planner(const LinkedPlan& linked, const EvaluatedPlan& evaluated, DeviceLayout& layout)
      : linked_(linked), evaluated_(evaluated), layout_(layout), plan_(linked.plan()) {}

  Status Place(bool canaries) {
    AddStorages();
    for (size_t s = 0; s < plan_.steps.size(); ++s) MarkUse(static_cast<int32_t>(s));
    RETURN_IF_ERROR(PlaceOnHost());
    return canaries ? PlaceApart() : PlaceTogether();
  }

  void Schedule() {
    for (size_t i = 0; i < inputs(); ++i)
      if (IsOnDevice(i)) Copy(DeviceAction::Kind::kUpload, i);
    for (size_t s = 0; s < plan_.steps.size(); ++s)
      if (std::holds_alternative<KernelStep>(plan_.steps[s].step)) {
        ScheduleKernel(s);
      } else {
        ScheduleReference(s);
      }
    for (size_t i = inputs(); i < inputs() + plan_.outputs.size(); ++i) FetchToHost(i);
    Wait();
  }

 private:
  using Kind = DeviceAction::Kind;
  // What is known of one storage while the steps are walked.
  struct Use {
    bool by_kernel = false, by_host = false;
    int32_t first_step = INT32_MAX, last_step = -1;
    bool host_valid = false, device_valid = false;
  };

  size_t inputs() const { return evaluated_.input_bytes.size(); }
  bool IsOnDevice(size_t storage) const { return layout_.storages[storage].device_offset >= 0; }

  void AddStorages() {
    for (int64_t bytes : evaluated_.input_bytes) layout_.storages.push_back({bytes});
    for (const EvaluatedOutput& output : evaluated_.outputs) layout_.storages.push_back({output.bytes});
    for (int64_t bytes : evaluated_.buffer_bytes) layout_.storages.push_back({bytes});
    uses_.resize(layout_.storages.size());
    for (size_t i = 0; i < inputs(); ++i) uses_[i].host_valid = true;
  }

  int32_t StorageOf(int32_t value) const {
    return value < 0 ? -1 : StorageIndex(linked_, evaluated_.values[static_cast<size_t>(value)]);
  }

  void MarkUse(int32_t step) {
    const PlanStep& at = plan_.steps[static_cast<size_t>(step)];
    const auto* kernel = std::get_if<KernelStep>(&at.step);
    const auto mark = [&](int32_t value) {
      const int32_t storage = StorageOf(value);
      if (storage < 0) return;
      Use& use = uses_[static_cast<size_t>(storage)];
      (kernel != nullptr ? use.by_kernel : use.by_host) = true;
      use.first_step = std::min(use.first_step, step);
      use.last_step = std::max(use.last_step, step);
    };
    if (kernel != nullptr) {
      for (int32_t value : kernel->pointers) mark(value);
      return;
    }
    const auto& node = std::get<ReferenceStep>(at.step);
    for (int32_t value : node.inputs) mark(value);
    for (int32_t value : node.outputs) mark(value);
  }

  // Of a storage that is used: inputs are there before the first step, outputs until after the last.
  ArenaBlock BlockOf(size_t storage, int64_t bytes) const {
    ArenaBlock block{bytes, uses_[storage].first_step, uses_[storage].last_step};
    if (storage < inputs()) block.first_step = 0;
    if (storage >= inputs() && storage < inputs() + plan_.outputs.size())
      block.last_step = static_cast<int32_t>(plan_.steps.size());
    return block;
  }

  Status PlaceOnHost() {
    std::vector<ArenaBlock> blocks;
    std::vector<size_t> of;
    for (size_t i = inputs() + plan_.outputs.size(); i < uses_.size(); ++i) {
      if (!uses_[i].by_host) continue;
      blocks.push_back(BlockOf(i, layout_.storages[i].bytes));
      of.push_back(i);
    }
    ASSIGN_OR_RETURN(const ArenaPacking packing, Pack(blocks));
    for (size_t i = 0; i < of.size(); ++i) layout_.storages[of[i]].host_offset = packing.offsets[i];
    layout_.host_bytes = packing.bytes;
    return {};
  }

  static Result<ArenaPacking> Pack(const std::vector<ArenaBlock>& blocks) {
    if (blocks.empty()) return ArenaPacking{};
    return PackArena(blocks);
  }

  // The same packing as on the processor, in units of the device's alignment: blocks of whole units lie at whole units.
  Status PlaceTogether() {
    std::vector<ArenaBlock> blocks;
    std::vector<size_t> of;
    for (size_t i = 0; i < uses_.size(); ++i) {
      if (!uses_[i].by_kernel) continue;
      blocks.push_back(BlockOf(i, RoundUp(layout_.storages[i].bytes, kDeviceAlignment)));
      of.push_back(i);
    }
    ASSIGN_OR_RETURN(const ArenaPacking packing, Pack(blocks));
    for (size_t i = 0; i < of.size(); ++i) layout_.storages[of[i]].device_offset = packing.offsets[i];
    layout_.device_bytes = packing.bytes;
    return {};
  }

  Status PlaceApart() {
    int64_t at = 0;
    const auto gap = [&](int64_t end) {
      layout_.gaps.push_back({at, end - at});
      at = end;
    };
    for (size_t i = 0; i < uses_.size(); ++i) {
      DeviceLayout::Storage& storage = layout_.storages[i];
      if (!uses_[i].by_kernel) continue;
      if (storage.bytes < 0 || storage.bytes > limits::kTensorBytesMax)
        return Fail(ErrorCode::kLimitExceeded, "temporary of " + std::to_string(storage.bytes) +
                                                   " bytes; the limit is " + std::to_string(limits::kTensorBytesMax));
      gap(RoundUp(at, kDeviceAlignment) + kDeviceAlignment);
      storage.device_offset = at;
      at += storage.bytes;
    }
    gap(RoundUp(at, kDeviceAlignment) + kDeviceAlignment);
    layout_.device_bytes = at;
    return {};
  }

  void Wait() {
    if (!begun_) return;
    layout_.actions.push_back({Kind::kWait, launched_ ? DeviceAction::kForKernels : DeviceAction::kForCopies});
    begun_ = launched_ = false;
  }
  // Copies are made while nothing runs: no copy then waits for a kernel, and a kernel that never ends is met by Wait.
  void Copy(Kind kind, size_t storage) {
    if (layout_.storages[storage].bytes == 0) return;
    if (launched_) Wait();
    layout_.actions.push_back({kind, static_cast<int32_t>(storage)});
    begun_ = true;
  }
  void FetchToHost(size_t storage) {
    Use& use = uses_[storage];
    if (use.host_valid || !use.device_valid) return;
    Copy(Kind::kDownload, storage);
    use.host_valid = true;
  }

  void ScheduleKernel(size_t step) {
    for (int32_t value : std::get<KernelStep>(plan_.steps[step].step).pointers) {
      const int32_t storage = StorageOf(value);
      if (storage < 0) continue;
      Use& use = uses_[static_cast<size_t>(storage)];
      const bool is_input = static_cast<size_t>(storage) < inputs();  // uploaded before the first step
      if (is_input || use.device_valid) continue;
      if (use.host_valid) Copy(Kind::kUpload, static_cast<size_t>(storage));
      use.device_valid = true;
    }
    // What a kernel touches it may have written.
    for (int32_t value : std::get<KernelStep>(plan_.steps[step].step).pointers) {
      const int32_t storage = StorageOf(value);
      if (storage < 0 || static_cast<size_t>(storage) < inputs()) continue;
      uses_[static_cast<size_t>(storage)].host_valid = false;
    }
    layout_.actions.push_back({Kind::kLaunch, static_cast<int32_t>(step)});
    begun_ = launched_ = true;
  }

  void ScheduleReference(size_t step) {
    const auto& node = std::get<ReferenceStep>(plan_.steps[step].step);
    for (int32_t value : node.inputs)
      if (const int32_t storage = StorageOf(value); storage >= 0) FetchToHost(static_cast<size_t>(storage));
    for (int32_t value : node.outputs) {
      const int32_t storage = StorageOf(value);
      if (storage < 0) continue;
      // The rest of what it writes only a part of must be there as well.
      const TensorRef& view = evaluated_.values[static_cast<size_t>(value)].view;
      const bool all = view.IsContiguous() && view.bytes() == layout_.storages[static_cast<size_t>(storage)].bytes;
      if (!all) FetchToHost(static_cast<size_t>(storage));
    }
    if (begun_ && !launched_) Wait();  // for the copies; what runs on is nothing to this step
    layout_.actions.push_back({Kind::kReference, static_cast<int32_t>(step)});
    for (int32_t value : node.outputs) {
      const int32_t storage = StorageOf(value);
      if (storage < 0) continue;
      uses_[static_cast<size_t>(storage)].host_valid = true;
      uses_[static_cast<size_t>(storage)].device_valid = false;
    }
  }

  const LinkedPlan& linked_;
  const EvaluatedPlan& evaluated_;
  DeviceLayout& layout_;
  const Plan& plan_;
  std::vector<Use> uses_;
  bool begun_ = false;     // something since the last wait…
  bool launched_ = false;  // …a kernel among it
};

}  // namespace

int32_t StorageIndex(const LinkedPlan& linked, const EvaluatedValue& value) {
  const int32_t inputs = linked.segment().runtime_inputs;
  switch (value.storage) {
    case StorageKind::kInput:
      return value.index;
    case StorageKind::kOutput:
      return inputs + value.index;
    case StorageKind::kArena:
      return inputs + static_cast<int32_t>(linked.plan().outputs.size()) + value.index;
    case StorageKind::kWeight:
    case StorageKind::kPrepacked:
      return -1;
  }
  return -1;
}

Result<DeviceLayout> LayOutOnDevice(const LinkedPlan& linked, const EvaluatedPlan& evaluated, bool canaries) {
  DeviceLayout layout;
  Planner planner(linked, evaluated, layout);
  RETURN_IF_ERROR(planner.Place(canaries));
  planner.Schedule();
  return layout;
}

}  // namespace kiln
