// Runs a plan instance as the answer to a segment's entry: inputs placed as the guard wants them, outputs and
// temporaries from the interpreter's memory.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "vm-worker/dispatch/device_instance.h"
#include "vm-worker/dispatch/plan_instance.h"
#include "vm-worker/interp/segment_hook.h"

namespace kiln {

// Tables that are kept from call to call, so that a steady call allocates nothing.
struct SegmentCallTables {
  std::vector<TensorRef> inputs;  // where some are copied
  std::vector<void*> outputs;
};

// The inputs, by position, that a plan's calls read through a copy: not contiguous or not on 64 bytes where its guard
// wants that. The same for every call of one signature.
std::vector<uint32_t> InputsToCopy(const Guard& guard, std::span<const TensorRef> inputs);

// The same of a device's plan, to which inputs are copied wherever they lie: those that are not contiguous.
std::vector<uint32_t> InputsToCopyForDevice(std::span<const TensorRef> inputs);

// `copies`: InputsToCopy of the instance's guard and the entry's inputs. Fills entry.outputs, adds the time in
// reference steps to `reference_ns`. ResourceExhausted, and whatever a reference step refuses (an index out of range).
Status RunOnEntry(PlanInstance& instance, const SegmentEntry& entry, std::span<const uint32_t> copies,
                  SegmentCallTables& tables, int64_t& reference_ns, StepTiming* timing = nullptr,
                  KernelPool* pool = nullptr);

// The same on a device. `copies`: InputsToCopyForDevice. Besides, what DeviceInstance::Run says.
Status RunOnDevice(DeviceInstance& instance, DeviceLane& lane, const SegmentEntry& entry,
                   std::span<const uint32_t> copies, SegmentCallTables& tables, int64_t& reference_ns,
                   StepTiming* timing = nullptr);

// Runs a prepack recipe's program in the interpreter; the RecipeRunner of production.
Result<Tensor> InterpretRecipe(const Program& program, std::span<const TensorRef> inputs);

}  // namespace kiln
