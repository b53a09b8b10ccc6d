// What this process holds in memory, for tests that say it stays flat.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "common/base/sanitizer.h"

#if KILN_ADDRESS_SANITIZER
#include <sanitizer/allocator_interface.h>
#endif

namespace kiln {

// Bytes: resident memory; with the address sanitizer, which keeps what was freed, what is allocated now.
inline int64_t HeldBytes() {
#if KILN_ADDRESS_SANITIZER
  return static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
#else
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
#endif
}

}  // namespace kiln
