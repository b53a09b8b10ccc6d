// Time as an injected dependency. Production code asks a Clock; tests drive one by hand.
#pragma once

#include <cstdint>

namespace kiln {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic nanoseconds since an arbitrary origin; for durations and deadlines.
  virtual int64_t NowNs() const = 0;
  // Wall-clock milliseconds since the Unix epoch; for provenance only, never for validity.
  virtual int64_t WallMs() const = 0;
};

// The process-wide real clock.
const Clock& SystemClock();

}  // namespace kiln
