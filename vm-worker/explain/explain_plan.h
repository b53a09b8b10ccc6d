// One plan of a segment in the source's words, and why a call does not satisfy its guard.
#pragma once

#include <optional>

#include "vm-worker/explain/segment_names.h"
#include "vm-worker/tiering/tier_controller.h"

namespace kiln {

// `timing` is of any plan of the segment; it is used when it is of this one. `with_steps`: steps are listed.
ExplainedPlan ExplainPlan(const PlanStatus& status, const SegmentNames& names, const std::optional<PlanTiming>& timing,
                          bool with_steps, int shadow_runs);

// The memory behind a kernel's pointers and how it lies there: "x row-major, packed 3, t5 channels-last". Layouts only
// where `values`, per symbol of the plan, are known.
std::string OperandsText(const Plan& plan, const KernelStep& step, const SegmentNames& names,
                         std::span<const int64_t> values);

// Every condition of the guard that the call fails, with the value and what the plan holds for. Empty: the plan admits
// the call. Inputs are taken as the plan would see them, copied together where they are views.
std::vector<std::string> GuardMismatch(const Plan& plan, const SegmentNames& names, const SeenCall& call);

}  // namespace kiln
