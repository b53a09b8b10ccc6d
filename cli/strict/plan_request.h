// Asking the services for the plan of one call, and waiting for it. For tools that measure or test plans; workers never
// wait.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/compile_api/compile_api.h"
#include "vm-worker/cache_client/plan_source.h"
#include "vm-worker/dispatch/linked_plan.h"
#include "vm-worker/interp/segment_hook.h"

namespace kiln::cli {

// Which plans are asked for.
enum class StrictTier : uint8_t { kGeneric, kExact };

struct PlanServices {
  RpcClient& compile;
  PlanSource& source;
  PackedWeights& packer;
  Target target;
  int64_t deadline_ms = 60'000;
};

// Symbol values of a call; -1 where no input shows one.
Result<std::vector<int64_t>> SymbolValuesOf(const Segment& segment, const SegmentEntry& entry);

// Whether the plan holds for the call once its inputs are contiguous and aligned.
bool Admits(const LinkedPlan& plan, const std::vector<int64_t>& values, const SegmentEntry& entry);

struct ObtainedPlan {
  std::shared_ptr<const LinkedPlan> plan;
  CompileReply reply;
};
// Compiled or found, published, fetched, verified, linked to the entry's weights.
Result<ObtainedPlan> ObtainPlan(const PlanServices& services, StrictTier tier, const SegmentEntry& entry,
                                const Segment& segment, const std::vector<int64_t>& values);

}  // namespace kiln::cli
