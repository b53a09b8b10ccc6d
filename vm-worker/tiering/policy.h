// When to ask for which plan: pure decisions over a segment's profile. No clocks, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/compile_api/compile_api.h"
#include "common/segment/segment.h"

namespace kiln {

struct TierPolicy {
  uint64_t warm_up_runs = 3;  // never ask before
  uint64_t hot_runs = 5;
  uint64_t hot_ns = 20'000'000;  // cumulative time in the interpreter
  size_t plans_max = limits::kPlansPerSegmentDefault;
  // A shape seen so often gets an exact plan when that saves more than its compilation takes, at the rate of its calls
  // over the horizon.
  uint64_t exact_calls = 64;
  int64_t horizon_ns = 600'000'000'000;
  // Shares of a call's time that an exact plan saves, of bench/results/peers.json. Over a general plan, until exact
  // plans of the segment have been measured: the geometric mean of 63 workloads (a general plan takes 1.06 times the
  // time of the exact one). Over the interpreter: the median (7.4 times).
  double gain_over_general = 0.06;
  double gain_over_interpreter = 0.87;
  uint64_t measured_calls = 32;      // of each kind, before a shape's exact plan counts as measured
  int64_t compile_ns = 300'000'000;  // until a plan of the segment has been compiled for this worker
  // Whether plans are asked for whose tiles were measured, in the same way: what they save of a plan's time (the mean
  // of bench/results/tuning.json rounded up, too little to be on by default), and what measuring takes.
  bool tuned = false;
  double tuned_gain = 0.01;
  int64_t tuning_ns = 5'000'000'000;
  // Whether range plans are asked for, in the same way, where many shapes share bounds or divisors that the segment
  // does not declare and none of them stands out. What they save of a general plan's time: nothing that was measured
  // (docs/design.md); the figure is what a policy that is asked to try assumes.
  bool range = false;
  double range_gain = 0.01;
  size_t range_shapes_min = 4;
  double range_shape_share_max = 0.5;  // of the calls, that one shape may have
  size_t ranges_max = 2;               // per segment
  // Counts of shapes halve after so long, and with them the time that they are of; a rate is never taken over less than
  // the second.
  int64_t half_life_ns = 300'000'000'000;
  int64_t rate_span_min_ns = 5'000'000'000;
};

struct CallTime {
  uint64_t calls = 0;
  uint64_t ns = 0;
  void Add(uint64_t more_calls, int64_t more_ns) {
    calls += more_calls;
    ns += static_cast<uint64_t>(more_ns);
  }
  void Add(const CallTime& more) {
    calls += more.calls;
    ns += more.ns;
  }
  void Halve() {
    calls /= 2;
    ns /= 2;
  }
  double PerCall() const { return calls == 0 ? 0 : static_cast<double>(ns) / static_cast<double>(calls); }
};

// Calls of one shape by what answered them.
struct ShapeTimes {
  CallTime interpreted;  // since plans were published last
  CallTime general;      // by a plan for more than this shape
  CallTime exact;
  uint64_t calls() const { return interpreted.calls + general.calls + exact.calls; }
  void Add(const ShapeTimes& more) {
    interpreted.Add(more.interpreted);
    general.Add(more.general);
    exact.Add(more.exact);
  }
};

// One shape of a segment as the profile holds it: symbol values (-1 for those known only inside), its calls, and
// whether a published plan for more than this shape admits it. Counts do not tell that: calls of before a plan was
// published or left arrive afterwards.
struct ShapeCount {
  std::vector<int64_t> symbol_values;
  ShapeTimes times;
  bool admitted = false;
};

struct SegmentProfile {
  uint64_t interpreted_calls = 0;
  uint64_t interpreted_ns = 0;
  uint64_t plan_calls = 0;
  std::vector<ShapeCount> shapes;  // most frequent first
  int64_t span_ns = 0;             // the time that the shapes' counts are of
  int64_t compile_ns = 0;          // of the segment's last plan; 0: unknown
};

// What exists or is on its way.
struct SegmentPlans {
  size_t published = 0;
  bool generic = false;  // a plan whose symbols are free
  bool request_pending = false;
  std::vector<std::vector<int64_t>> exact;  // symbol values that have a plan, or were refused one
  std::vector<std::vector<int64_t>> exact_published;
  // Range plans: one is asked for; those that are there or were refused.
  bool range_pending = false;
  std::vector<std::vector<SymbolGuard>> ranges;
  // Tuned plans: one is asked for; those that are there or were refused, for a shape or beside the general plan.
  bool tuned_pending = false;
  bool tuned_general = false;
  std::vector<std::vector<int64_t>> tuned_exact;
};

// What an exact plan for one shape is worth.
struct ExactForecast {
  double calls_per_s = 0;
  double call_ns = 0;      // of a call as it is answered now
  double gain = 0;         // share of it that the exact plan saves…
  size_t learnt_from = 0;  // …as so many measured exact plans of the segment say; 0: a default
  double saved_ns = 0;     // over the horizon…
  double horizon_ns = 0;
  double compile_ns = 0;
  bool Pays() const { return saved_ns > compile_ns; }
};
// "12.5 calls/s of 1.20 ms each; predicted to save 6 % (a default) and 3.1 s in 600 s, for 0.2 s of compilation".
std::string ForecastText(const ExactForecast& forecast);
ExactForecast ForecastExact(const TierPolicy& policy, const SegmentProfile& profile, const ShapeCount& shape);

struct PlanWish {
  PlanTier tier;
  std::vector<SymbolGuard> symbols;
  std::vector<int64_t> hints;
  uint32_t priority;       // microseconds that the plan saves, as far as can be told; capped
  ExactForecast forecast;  // of an exact plan beside others
  bool general = false;    // of a tuned plan: for more than one shape
};

// The next request to send, or nothing. The first plan is generic over the segment's symbols (declared ones free; with
// no symbols it is exact); once one is published, shapes for which that pays follow with exact plans, most worth first.
// Shapes that none of those stands out of get a range plan, where that is asked for. What then still takes much time is
// asked for once more, tuned: an exact plan, or the general one for its most
// frequent shape.
std::optional<PlanWish> NextPlan(const TierPolicy& policy, const Segment& segment, const SegmentProfile& profile,
                                 const SegmentPlans& plans);

// Whether a plan holds for fewer values than the segment declares: every plan but a generic one.
bool IsBounded(const Guard& guard, const Segment& segment);

}  // namespace kiln
