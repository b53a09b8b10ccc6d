#include "cache-store/eviction/policy.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace kiln::store {

double DecayedUse(double use, int64_t elapsed_ms) {
  if (elapsed_ms <= 0) return use;
  return use * std::exp2(-static_cast<double>(elapsed_ms) / static_cast<double>(kUseHalfLifeMs));
}

double EvictionWorth(const EvictionCandidate& candidate) {
  if (candidate.worthless) return 0;
  // One is added to both factors, so that a free or unused plan still ranks by the others.
  return static_cast<double>(candidate.compile_us + 1) * (candidate.use + 1) /
         static_cast<double>(std::max<uint64_t>(candidate.bytes, 1));
}

std::vector<Digest> EvictionOrder(std::span<const EvictionCandidate> candidates) {
  std::vector<std::tuple<double, Digest>> ranked;
  for (const EvictionCandidate& candidate : candidates)
    if (!candidate.pinned) ranked.emplace_back(EvictionWorth(candidate), candidate.plan_key);
  std::sort(ranked.begin(), ranked.end());
  std::vector<Digest> order;
  for (const auto& [worth, key] : ranked) order.push_back(key);
  return order;
}

}  // namespace kiln::store
