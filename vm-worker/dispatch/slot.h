// Slot: a segment's dispatch point. Holds the published plans, most specific first; replaced as a whole, read without
// locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "vm-worker/dispatch/epoch.h"
#include "vm-worker/dispatch/linked_plan.h"

namespace kiln {

// The symbol values that an exact plan is for; -1 for symbols known only inside the segment.
std::vector<int64_t> ExactValues(const LinkedPlan& plan);

// The plans of a slot at one moment: most specific first, of two that are equal in that the one of the higher rung;
// every device's rung is above every processor's.
// Immutable, thread-safe.
class PlanList {
 public:
  // At most limits::kSlotPlansMax plans; order of `plans` does not matter.
  PlanList(std::vector<std::shared_ptr<const LinkedPlan>> plans, uint64_t version);

  // The most specific plan whose guard holds, or nullptr. Exact plans are found by a hash of the symbol values
  // (verified in full by the guard), others by a scan in order. Without `device` those of devices are left out.
  const std::shared_ptr<const LinkedPlan>* Select(std::span<const int64_t> symbol_values,
                                                  std::span<const TensorRef> inputs, bool device = true) const;
  std::span<const std::shared_ptr<const LinkedPlan>> plans() const { return plans_; }
  uint64_t version() const { return version_; }

 private:
  std::vector<std::shared_ptr<const LinkedPlan>> plans_;  // most specific first
  std::unordered_multimap<uint64_t, size_t> exact_;       // hash of the exact symbol values -> index
  size_t first_general_ = 0;                              // plans before it are exact
  uint64_t version_;
};

// Readers call Load inside an EpochScope; one control thread publishes.
class Slot {
 public:
  explicit Slot(EpochDomain& epochs) : epochs_(epochs) {}
  ~Slot() { delete list_.load(); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  // nullptr while nothing is published. Valid until the caller leaves its epoch.
  const PlanList* Load() const { return list_.load(std::memory_order_seq_cst); }
  // Replaces the plans in one step; the former list is freed after its readers have left.
  void Publish(std::vector<std::shared_ptr<const LinkedPlan>> plans);
  // What is published, for the control thread.
  std::vector<std::shared_ptr<const LinkedPlan>> plans() const;

 private:
  EpochDomain& epochs_;
  std::atomic<const PlanList*> list_{nullptr};
  uint64_t next_version_ = 1;
};

}  // namespace kiln
