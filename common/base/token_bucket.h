// TokenBucket: how much somebody may ask for: `burst` at once, and `per_s` over time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace kiln {

struct BucketSize {
  double burst = 1;
  double per_s = 1;
};

// Full at first. Time is the caller's and never goes back. Not thread-safe.
class TokenBucket {
 public:
  TokenBucket(BucketSize size, int64_t now_ns) : size_(size), tokens_(size.burst), since_ns_(now_ns) {}

  // False when there is no token: nothing changes then.
  bool Take(int64_t now_ns) {
    const double tokens = TokensAt(now_ns);
    if (tokens < 1) return false;
    tokens_ = tokens - 1;
    since_ns_ = now_ns;
    return true;
  }
  // One back, of something that came to nothing.
  void Return(int64_t now_ns) {
    tokens_ = std::min(size_.burst, TokensAt(now_ns) + 1);
    since_ns_ = now_ns;
  }
  // Nanoseconds until there is one; 0: there is.
  int64_t WaitNs(int64_t now_ns) const {
    const double missing = 1 - TokensAt(now_ns);
    return missing <= 0 ? 0 : static_cast<int64_t>(missing / size_.per_s * 1e9) + 1;
  }
  bool IsFull(int64_t now_ns) const { return TokensAt(now_ns) >= size_.burst; }

 private:
  // A token that is all there but for rounding is there.
  double TokensAt(int64_t now_ns) const {
    const double grown = static_cast<double>(std::max<int64_t>(0, now_ns - since_ns_)) / 1e9 * size_.per_s;
    return std::min(size_.burst, tokens_ + grown + 1e-9);
  }
  BucketSize size_;
  double tokens_;
  int64_t since_ns_;
};

// A bucket for each of many. A full one is the same as one that was never seen, so it is forgotten when there are
// `max`; whoever comes when all are in use shares one bucket with others like him. Not thread-safe.
class TokenBuckets {
 public:
  TokenBuckets(BucketSize each, size_t max) : each_(each), max_(max) {}

  TokenBucket& Of(const std::string& name, int64_t now_ns) {
    if (const auto found = buckets_.find(name); found != buckets_.end()) return found->second;
    if (buckets_.size() >= max_)
      std::erase_if(buckets_, [&](const auto& entry) { return entry.second.IsFull(now_ns); });
    const std::string key = buckets_.size() >= max_ ? std::string() : name;
    return buckets_.try_emplace(key, each_, now_ns).first->second;
  }
  size_t size() const { return buckets_.size(); }

 private:
  const BucketSize each_;
  const size_t max_;
  std::map<std::string, TokenBucket> buckets_;
};

}  // namespace kiln
