// An operator new that finds no memory when it is told so. Replaces the program's own.
#pragma once

#include <cstddef>

namespace kiln {

inline constexpr size_t kFailingBytes = size_t{1} << 20;

// On the calling thread, allocations of kFailingBytes or more fail from now on, or do so no more.
void FailLargeAllocations(bool fail);
int FailedAllocations();

}  // namespace kiln
