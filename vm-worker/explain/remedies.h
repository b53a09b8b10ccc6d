// What would change how a segment runs: sentences with the figures they rest on.
#pragma once

#include <string>
#include <vector>

#include "common/worker_api/explain.h"
#include "vm-worker/tiering/tier_controller.h"

namespace kiln {

// `explained` holds everything else that is known about the segment.
std::vector<std::string> Remedies(const SegmentStatus& status, const TierOptions& options,
                                  const ExplainedSegment& explained);

}  // namespace kiln
