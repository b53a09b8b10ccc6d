// StrictHook: every segment through a compiled plan, or the run is marked as failed. The real path (compile service,
// store, signature, link, instantiate) without the waiting: plans are asked for at the first call of a segment.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/strict/plan_request.h"
#include "vm-worker/dispatch/segment_call.h"
#include "vm-worker/interp/segment_hook.h"

namespace kiln::cli {

// Nodes of one op. Those that plans need no step for (constants, views that are address arithmetic) are not counted.
struct OpCoverage {
  uint32_t generated = 0, reference = 0;
};

// What the plans of one program cover; summed over its segments as they are met.
struct StrictCoverage {
  uint32_t segments = 0;
  uint32_t generated_nodes = 0, reference_nodes = 0;
  uint32_t kernels = 0, kernels_compiled = 0;
  std::map<TensorOp, OpCoverage> ops;   // of the segments' nodes
  std::map<SegmentEnd, uint32_t> ends;  // of the programs' segments, by reason

  void Add(const StrictCoverage& other);
};

// One per loaded program, which must stay the same: plans are kept by its segments' indices for later runs. Not
// thread-safe.
class StrictHook final : public SegmentHook {
 public:
  using Services = PlanServices;
  StrictHook(Services services, StrictTier tier) : services_(services), tier_(tier) {}

  SegmentVerdict Enter(const SegmentEntry& entry) override;
  void Leave(const SegmentEntry&, int64_t) override {}

  // Called after each segment with the time of each of its plan's steps; costs two clock reads a step.
  using StepObserver = std::function<void(const SegmentEntry&, const LinkedPlan&,
                                          const std::vector<int64_t>& symbol_values, const StepTiming&)>;
  void ObserveSteps(StepObserver observer) { observer_ = std::move(observer); }

  // The first failure: which segment, and why it has no plan or the plan did not run. Empty: every segment ran
  // compiled.
  const std::string& failure() const { return failure_; }
  const StrictCoverage& coverage() const { return coverage_; }

 private:
  Status RunCompiled(const SegmentEntry& entry);
  Result<std::shared_ptr<const LinkedPlan>> PlanFor(const SegmentEntry& entry, const Segment& segment,
                                                    const std::vector<int64_t>& values);

  Services services_;
  StrictTier tier_;
  StepObserver observer_;
  std::string failure_;
  StrictCoverage coverage_;
  // By segment index of the program; a generic plan may not admit a later call (an assumption of its first one fails):
  // then another follows.
  std::map<int, std::vector<std::shared_ptr<const LinkedPlan>>> plans_;
  SegmentCallTables tables_;
};

}  // namespace kiln::cli
