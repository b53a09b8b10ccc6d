// How many heap allocations this thread has made; every operator new of the program counts.
#pragma once

#include <cstdint>

namespace kiln::bench {

int64_t ThreadAllocations();

}  // namespace kiln::bench
