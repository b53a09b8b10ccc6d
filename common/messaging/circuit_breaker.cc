#include "common/messaging/circuit_breaker.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int kDoublingsMax = 20;

}  // namespace

bool CircuitBreaker::Allow(int64_t now_ns) {
  switch (state_) {
    case State::kClosed:
      return true;
    case State::kOpen:
    case State::kHalfOpen:
      if (now_ns < retry_at_ns_) return false;
      state_ = State::kHalfOpen;
      retry_at_ns_ = now_ns + options_.probe_gap_ms * kNsPerMs;
      return true;
  }
  return false;
}

void CircuitBreaker::OnSuccess() {
  state_ = State::kClosed;
  failures_ = 0;
  opened_ = 0;
}

void CircuitBreaker::OnFailure(int64_t now_ns) {
  if (state_ == State::kOpen) return;  // a call made before it opened
  if (state_ == State::kClosed && ++failures_ < options_.failures_to_open) return;
  state_ = State::kOpen;
  failures_ = 0;
  const int64_t ceiling =
      std::min(options_.backoff_max_ms, options_.backoff_min_ms << std::min(opened_ + 1, kDoublingsMax));
  opened_ = std::min(opened_ + 1, kDoublingsMax);
  std::uniform_int_distribution<int64_t> jitter(options_.backoff_min_ms, std::max(options_.backoff_min_ms, ceiling));
  retry_at_ns_ = now_ns + jitter(random_) * kNsPerMs;
}

int64_t CircuitBreaker::RetryAfterMs(int64_t now_ns) const {
  if (state_ == State::kClosed || now_ns >= retry_at_ns_) return 0;
  return (retry_at_ns_ - now_ns + kNsPerMs - 1) / kNsPerMs;
}

}  // namespace kiln
