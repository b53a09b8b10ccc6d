// Whether what a worker says of a whole plan can be reproduced: the plan beside the reference ops, on values that are
// drawn here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/artifact/plan.h"
#include "common/artifact/target.h"
#include "common/compile_api/reproduce_outcome.h"

namespace kiln {

struct PlanTrial {
  const Plan& plan;  // verified against `segment`
  const Segment& segment;
  std::span<const std::vector<uint8_t>> code;  // of plan.kernels, in order
  std::vector<Dims> inputs;                    // of the run-time inputs
  std::vector<int64_t> parameters;
  uint64_t seed = 0;      // of the first draw: whoever asks may have chosen it
  uint64_t own_seed = 0;  // of the others: nobody outside may know it before
  int64_t budget_ms = 0;  // no draw begins after half of it
};

// Inputs and weights are random, integers small and where the ops need it positions; up to kPlanDraws draws, every
// second one with kernels in two parts and temporaries in each other's places. In this order:
//   Fault       the plan's code ended its process, ran for ever, or wrote where it must not: one draw is enough
//   Mismatch    at least two draws differ by more than the numeric mode allows, so at least one that nobody chose; or
//               the plan refuses twice what the ops compute
//   Agrees      every draw that could tell is right, and one could
//   Undecided   anything else: draws that the ops refuse, values that are not finite, decisions on inexact numbers,
//               a case too large to be tried, a host that cannot run the plan
// The plan runs in forked children (RunContained), everything else in this process. Never an error of the plan's: bad
// dims or parameters are InvalidArgument.
Result<ReproduceVerdict> TryPlan(const PlanTrial& trial);

inline constexpr int kPlanDraws = 4;

}  // namespace kiln
