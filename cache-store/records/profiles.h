// Merging of shape histograms: what a worker saw is added to what the fleet saw before, bounded per segment.
#pragma once

#include <vector>

#include "common/cache_api/types.h"

namespace kiln::store {

inline constexpr size_t kProfileSignaturesMax = 256;  // per segment; the most frequent stay

// `merged` += `added`, most frequent first. Counts saturate.
void MergeProfileEntries(std::vector<cache::ProfileEntry>& merged, const std::vector<cache::ProfileEntry>& added);

}  // namespace kiln::store
