// JobControl: until when, and whether at all, somebody wants the result of a request. The request's job and its
// children's jobs ask it.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>

#include "common/base/result.h"

namespace kiln {

// Thread-safe.
class JobControl {
 public:
  explicit JobControl(int64_t deadline_ns = std::numeric_limits<int64_t>::max()) : deadline_ns_(deadline_ns) {}

  // Somebody with a later deadline joined.
  void Extend(int64_t deadline_ns) {
    int64_t known = deadline_ns_.load();
    while (known < deadline_ns && !deadline_ns_.compare_exchange_weak(known, deadline_ns)) {
    }
  }
  // Nobody waits any more.
  void Cancel() { cancelled_.store(true); }

  int64_t deadline_ns() const { return deadline_ns_.load(); }
  // Cancelled or DeadlineExceeded once the result is of no use.
  Status Check(int64_t now_ns) const {
    if (cancelled_.load()) return Fail(ErrorCode::kCancelled, "nobody waits for this request any more");
    if (const int64_t deadline_ns = deadline_ns_.load(); now_ns > deadline_ns) {
      missed_deadline_ns_.store(deadline_ns);
      return Fail(ErrorCode::kDeadlineExceeded, "the request's deadline passed");
    }
    return {};
  }
  // The deadline that a check found to have passed; a later one may have come since.
  std::optional<int64_t> missed_deadline_ns() const {
    const int64_t missed = missed_deadline_ns_.load();
    return missed == kNone ? std::nullopt : std::optional(missed);
  }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
  std::atomic<int64_t> deadline_ns_;
  mutable std::atomic<int64_t> missed_deadline_ns_{kNone};
  std::atomic<bool> cancelled_{false};
};

}  // namespace kiln
