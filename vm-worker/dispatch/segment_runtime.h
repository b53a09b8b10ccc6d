// What the threads of a worker share about one segment of a loaded model.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "vm-worker/dispatch/slot.h"

namespace kiln {

// Counters of one thread for one segment. Written by that thread, read by the control thread; relaxed, never exact to
// the call.
struct alignas(64) SegmentCounters {
  std::atomic<uint64_t> interpreted_calls{0};
  std::atomic<uint64_t> plan_calls{0};
  std::atomic<uint64_t> interpreted_ns{0};
  std::atomic<uint64_t> kernel_ns{0};      // generated kernels, with the steps' own overhead
  std::atomic<uint64_t> reference_ns{0};   // reference steps inside plans
  std::atomic<uint64_t> guard_misses{0};   // plans were there, none held
  std::atomic<uint64_t> plans_not_run{0};  // one held, but there was no memory for it, or its run ended in an error
  std::atomic<uint64_t> input_copies{0};   // inputs made contiguous for a plan
};

// Adds to a counter that only the calling thread writes.
inline void Count(std::atomic<uint64_t>& counter, uint64_t amount = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

// One per segment site. `slot` is read by workers; everything is written by the control thread.
struct SegmentRuntime {
  explicit SegmentRuntime(EpochDomain& epochs) : slot(epochs) {}

  Slot slot;
  // The plan that waits for clean shadow runs, or nullptr: while samples are wanted and the shadow queue has room,
  // calls that it admits are answered by the interpreter and handed there; who takes a sample takes one off
  // `shadow_wanted`. Retired through the epochs like plans in the slot.
  std::atomic<const LinkedPlan*> shadowed{nullptr};
  std::atomic<int> shadow_wanted{0};
  // Of calls that a plan answers, every so many one is handed to the observer as a sample; 0: none.
  std::atomic<uint32_t> sample_every{0};
  // While positive, calls answered by a plan measure their steps and hand the times to the observer; armed by explain.
  std::atomic<int> timing_wanted{0};
};

}  // namespace kiln
