// Whether what a worker says of a whole plan can be reproduced: the plan beside the reference ops, on values that are
// drawn here.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/artifact/plan.h"
#include "common/artifact/target.h"
#include "common/base/clock.h"
#include "common/compile_api/reproduce_outcome.h"

namespace kiln {

// Processor time of this process and of its children that have ended.
int64_t ProcessorNs();
// Of a trial that ran out of time: whether other work on the host took most of it.
bool HostWasBusy(int64_t passed_ns, int64_t processor_ns);

struct PlanTrial {
  const Plan& plan;  // verified against `segment`
  const Segment& segment;
  std::span<const std::vector<uint8_t>> code;  // of plan.kernels, in order
  std::vector<Dims> inputs;                    // of the run-time inputs
  std::vector<int64_t> parameters;
  uint64_t seed = 0;      // of the first draw: whoever asks may have chosen it
  uint64_t own_seed = 0;  // of the others: nobody outside may know it before
  int64_t budget_ms = 0;  // no draw begins after half of it
  const Clock& clock = SystemClock();
  std::function<int64_t()> processor_ns = ProcessorNs;
};

// Inputs and weights are random, integers small and where the ops need it positions; up to kPlanDraws draws, where they
// take little up to kCheapPlanDraws, every second one with kernels in two parts and temporaries in each other's places.
// In this order:
//   Fault       the plan's code ended its process, ran for ever, or wrote where it must not: one draw is enough
//   Mismatch    at least two draws differ by more than the numeric mode allows, so at least one that nobody chose; or
//               the plan refuses twice what the ops compute
//   Agrees      every draw that could tell is right, and one could
//   Undecided   anything else: draws that the ops refuse, values that are not finite, decisions on inexact numbers,
//               a case too large to be tried, a host that cannot run the plan
// The plan runs in forked children (RunContained), everything else in this process. Never an error of the plan's: bad
// dims or parameters are InvalidArgument; Busy where nothing was decided because the host had no time or no process for
// a draw, which another try may have.
Result<ReproduceVerdict> TryPlan(const PlanTrial& trial);

inline constexpr int kPlanDraws = 4, kCheapPlanDraws = 24;

}  // namespace kiln
