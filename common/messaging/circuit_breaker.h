// When to stop asking a peer that does not answer, and when to try again: closed → open after consecutive failures →
// half-open with one probe at a time, and another when that one takes long: a call whose deadline is minutes away says
// nothing for minutes. Open times grow exponentially with full jitter, so that a fleet does not return in step.
// Time is passed in. Not thread-safe.
#pragma once

#include <cstdint>
#include <random>

namespace kiln {

struct CircuitBreakerOptions {
  int failures_to_open = 3;
  int64_t backoff_min_ms = 100;
  int64_t backoff_max_ms = 30'000;
  int64_t probe_gap_ms = 1'000;
};

class CircuitBreaker {
 public:
  enum class State : uint8_t { kClosed, kOpen, kHalfOpen };

  CircuitBreaker(const CircuitBreakerOptions& options, uint64_t seed) : options_(options), random_(seed) {}

  // May a call be made now? In half-open state only the one that asks first, and one every probe_gap_ms after it; each
  // must be followed by OnSuccess or OnFailure.
  bool Allow(int64_t now_ns);
  void OnSuccess();
  void OnFailure(int64_t now_ns);

  State state() const { return state_; }
  // Milliseconds until a call may be made; 0 when it may now.
  int64_t RetryAfterMs(int64_t now_ns) const;

 private:
  CircuitBreakerOptions options_;
  std::mt19937_64 random_;
  State state_ = State::kClosed;
  int failures_ = 0;
  int opened_ = 0;  // consecutive times without a success between
  int64_t retry_at_ns_ = 0;
};

}  // namespace kiln
