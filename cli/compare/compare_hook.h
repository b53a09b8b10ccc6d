// CompareHook: every segment a program enters is answered by the interpreter and, beside it, by its plan; differences
// are kept.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cli/compare/segment_case.h"
#include "vm-worker/interp/segment_hook.h"

namespace kiln::cli {

// One per run, not thread-safe. The interpreter's answers are the run's: a wrong plan never spreads, so that what is
// found first is where the fault lies. A segment is compared once per signature.
class CompareHook final : public SegmentHook {
 public:
  using PlanProvider = std::function<Result<std::shared_ptr<const LinkedPlan>>(
      const SegmentEntry&, const Segment&, const std::vector<int64_t>& symbol_values)>;
  struct Finding {
    int segment = 0;
    SegmentCase call;
    CaseDifference difference;
  };
  explicit CompareHook(PlanProvider plans) : plans_(std::move(plans)) {}

  SegmentVerdict Enter(const SegmentEntry& entry) override;
  void Leave(const SegmentEntry&, int64_t) override {}

  // In the order in which the program met them.
  const std::vector<Finding>& findings() const { return findings_; }
  // Segments that have no plan, and why.
  const std::vector<std::string>& failures() const { return failures_; }
  int compared() const { return compared_; }

 private:
  Status Compare(const SegmentEntry& entry);

  PlanProvider plans_;
  std::set<std::pair<int, std::vector<uint64_t>>> seen_;
  std::vector<Finding> findings_;
  std::vector<std::string> failures_;
  int compared_ = 0;
};

}  // namespace kiln::cli
