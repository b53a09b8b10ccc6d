// DeviceInstance: a linked plan of a device made ready for one set of symbol values; what a call executes there.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "vm-worker/dispatch/device_layout.h"
#include "vm-worker/dispatch/plan_instance.h"
#include "vm-worker/dispatch/reference_call.h"

namespace kiln {

// Memory of one call on the host: `arena` has at least host_bytes(), 64-byte aligned.
struct DeviceCall {
  std::span<const TensorRef> inputs;  // contiguous
  std::span<void* const> outputs;     // one per output, 64-byte aligned, output_bytes(i)
  void* arena;
  KernelMemory* memory;             // for reference steps' scratch
  int64_t* reference_ns = nullptr;  // when not null: time in reference steps is added
  StepTiming* timing = nullptr;     // when not null: time per step is added, each kernel waited for
  int64_t deadline_ns = 0;          // when not 0: looked at while the device is waited for, on SystemClock
};

// Who vouches for a plan that runs on a device.
enum class DeviceTrust : uint8_t {
  kProven,
  // In its shadow runs: blamed before others for a fault; memory that it may not write is looked at after the run, and
  // what it reads without having written it is no number.
  kUnproven,
};

// Keeps its LinkedPlan alive where that is not borrowed. Holds per-call tables, hence not thread-safe.
class DeviceInstance {
 public:
  // Evaluates and verifies as PlanInstance does; places are those of a lane's arena. Touches no device.
  static Result<std::unique_ptr<DeviceInstance>> Instantiate(std::shared_ptr<const LinkedPlan> linked,
                                                             std::span<const int64_t> symbol_values,
                                                             DeviceTrust trust = DeviceTrust::kProven);

  int64_t host_bytes() const { return layout_.host_bytes; }
  int64_t device_bytes() const { return layout_.device_bytes; }  // of the lane's arena
  size_t output_count() const { return outputs_.size(); }
  const TensorRef& output(size_t i) const { return outputs_[i].ref; }  // its shape, without data
  int64_t output_bytes(size_t i) const { return outputs_[i].bytes; }
  const LinkedPlan& linked() const { return *linked_; }
  int64_t bytes() const;  // of this object

  // Copies in, launches, copies out. Errors, after which nothing of the call is to be believed: what the device says
  // (CudaDevice::Check; DeadlineExceeded; Unavailable), what reference steps refuse, IntegrityFailure: an unproven plan
  // wrote where it may not. A refusal of the driver is noted for the control thread (DeviceRefusal).
  Status Run(DeviceLane& lane, const DeviceCall& call);

 private:
  DeviceInstance() = default;
  struct Launch {
    const DeviceKernel* kernel;
    size_t first_word;  // in words_
    int64_t range;
  };
  struct Patch {  // a pointer into the lane's arena
    size_t word;
    int64_t offset;
  };
  struct HostAddress {  // host base table entry plus byte offset; base -1: null
    int32_t base;
    int64_t offset;
  };
  struct Reference {
    size_t first_address;  // in addresses_
    ReferenceCall call;
  };

  Status BuildSteps(const EvaluatedPlan& evaluated, std::span<const int64_t> symbol_values);
  Status AddLaunch(size_t step, const EvaluatedPlan& evaluated, std::span<const int64_t> symbol_values);
  HostAddress HostAddressOf(const EvaluatedValue& value) const;
  HostAddress HostAddressOfStorage(int32_t storage) const;
  void* Resolve(HostAddress address) const;
  Status RunActions(DeviceLane& lane, const DeviceCall& call);
  Status RunReferenceStep(size_t step, const DeviceCall& call);
  Status CheckGaps(DeviceLane& lane) const;

  std::shared_ptr<const LinkedPlan> linked_;
  DeviceTrust trust_{};
  std::vector<EvaluatedOutput> outputs_;
  bool is_empty_ = false;
  DeviceLayout layout_;
  std::vector<int32_t> index_of_;  // per plan step: in launches_ or references_
  std::vector<Launch> launches_;
  std::vector<Reference> references_;
  std::vector<int64_t> words_;  // the arguments of all launches
  std::vector<Patch> patches_;
  cuda::Pointer patched_for_ = 0;  // the arena that words_ point into
  std::vector<HostAddress> addresses_;
  std::vector<void*> pointers_;  // of one reference step
  std::vector<void*> bases_;     // inputs, outputs, arena; then weights and packed ones, which are constant
};

}  // namespace kiln
