// Settings of a worker's tiering, and what it counts.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/token_bucket.h"
#include "common/compile_api/reproduce_outcome.h"
#include "vm-worker/tiering/miss_reasons.h"
#include "vm-worker/tiering/policy.h"
#include "vm-worker/tiering/shadow.h"

namespace kiln {

class PerfMap;

// Compile requests: how many at once, and over time. A request that comes to nothing because the service is away or
// busy counts for nothing.
struct RequestRates {
  BucketSize segment{16, 1.0 / 30};
  BucketSize model{256, 2};
  BucketSize worker{1024, 8};  // of all models: what this worker may ask of the fleet
};

struct TierOptions {
  TierPolicy policy;
  RequestRates rates;
  NumericMode numeric_mode = NumericMode::kDefault;
  std::vector<Target> targets;   // of the processor that are acceptable, best first; the first is asked for…
  CudaDevice* device = nullptr;  // …unless there is a device, whose best one then is. Outlives the controller
  int shadow_runs = 3;
  int undecided_max = 16;        // shadow runs that cannot tell before a plan is given up
  uint32_t sample_every = 1024;  // calls answered by a plan that only others have proven, per sample
  ShadowRunner::Options shadow;
  int64_t tick_ms = 50;
  int64_t change_log_ms = limits::kChangeLogPollMs;
  std::string reporter;            // unique per worker process
  bool gdb_symbols = false;        // NameForGdb for every plan's code
  PerfMap* perf_map = nullptr;     // told of every plan's code; outlives the controller
  MemoryBudget* budget = nullptr;  // of the whole worker; null: no limit. Outlives the controller
  // false: no threads; whoever owns the controller calls Step, and time is `clock`'s.
  bool own_threads = true;
  const Clock* clock = &SystemClock();
};

// Counters since the start; a snapshot.
struct TierStats {
  uint64_t compile_requests = 0, throttled = 0, compiled = 0, compile_failures = 0, fetched = 0, fetched_from_disk = 0,
           rejected = 0, published = 0, shadow_clean = 0, shadow_mismatches = 0, shadow_undecided = 0,
           shadow_faults = 0, samples_clean = 0, quarantined = 0, evicted = 0;
  std::array<uint64_t, kReproduceOutcomes> reproductions{};  // of plans that were wrong here, by ReproduceOutcome
  MissLedger misses;
};

}  // namespace kiln
