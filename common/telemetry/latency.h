// A histogram of times with fixed bounds, written from any thread without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kiln {

// Upper bounds of the buckets: 50 µs, doubling, up to about 27 s; what is longer counts in a bucket of its own.
inline constexpr size_t kLatencyBounds = 20;
constexpr int64_t LatencyBoundNs(size_t bucket) {
  return int64_t{50'000} << bucket;
}

struct LatencySnapshot {
  std::array<uint64_t, kLatencyBounds + 1> counts{};
  uint64_t sum_ns = 0;
};

// Thread-safe.
class Latency {
 public:
  void Record(int64_t ns) {
    size_t bucket = 0;
    while (bucket < kLatencyBounds && ns > LatencyBoundNs(bucket)) ++bucket;
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(ns > 0 ? static_cast<uint64_t>(ns) : 0, std::memory_order_relaxed);
  }
  LatencySnapshot Snapshot() const {
    LatencySnapshot snapshot;
    for (size_t i = 0; i < counts_.size(); ++i) snapshot.counts[i] = counts_[i].load(std::memory_order_relaxed);
    snapshot.sum_ns = sum_ns_.load(std::memory_order_relaxed);
    return snapshot;
  }

 private:
  std::array<std::atomic<uint64_t>, kLatencyBounds + 1> counts_{};
  std::atomic<uint64_t> sum_ns_{0};
};

}  // namespace kiln
