// A core that nobody uses, to time kernels on.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "common/base/result.h"

namespace kiln {

// From two readings of /proc/stat: of the cores in `allowed`, the one that was idle for the largest share of the time
// between them, at least share_min.
std::optional<int> MostIdleCore(std::string_view before, std::string_view after, std::span<const int> allowed,
                                double share_min);

// Watches the cores for a moment and moves the calling thread to the idlest. Busy when none is idle for `share_min` of
// the time: what is measured beside other work is no measurement.
Status MoveToIdleCore(double share_min);

}  // namespace kiln
