// When to ask for which plan: pure decisions over a segment's profile. No clocks, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/compile_api/compile_api.h"
#include "common/segment/segment.h"

namespace kiln {

struct TierPolicy {
  uint64_t warm_up_runs = 3;  // never ask before
  uint64_t hot_runs = 5;
  uint64_t hot_ns = 20'000'000;  // cumulative time in the interpreter
  size_t plans_max = limits::kPlansPerSegmentDefault;
  uint64_t exact_calls = 64;  // a signature seen so often may get a plan of its own…
  double exact_share = 0.3;   // …when it makes at least this share of the segment's calls
};

// One shape of a segment as the profile holds it: symbol values (-1 for those known only inside) and how often it came.
struct ShapeCount {
  std::vector<int64_t> symbol_values;
  uint64_t calls = 0;
};

struct SegmentProfile {
  uint64_t interpreted_calls = 0;
  uint64_t interpreted_ns = 0;
  uint64_t plan_calls = 0;
  std::vector<ShapeCount> shapes;  // most frequent first
};

// What exists or is on its way.
struct SegmentPlans {
  size_t published = 0;
  bool generic = false;  // a plan whose symbols are free
  bool request_pending = false;
  std::vector<std::vector<int64_t>> exact;  // symbol values that have a plan, or were refused one
};

struct PlanWish {
  PlanTier tier;
  std::vector<SymbolGuard> symbols;
  std::vector<int64_t> hints;
  uint32_t priority;
};

// The next request to send, or nothing. The first plan is generic over the segment's symbols (declared ones free; with
// no symbols it is exact); frequent shapes follow with exact plans.
std::optional<PlanWish> NextPlan(const TierPolicy& policy, const Segment& segment, const SegmentProfile& profile,
                                 const SegmentPlans& plans);

}  // namespace kiln
