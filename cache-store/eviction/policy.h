// Cost-aware eviction: a plan's worth is what recompiling it would cost × how much it is used ÷ the space it takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/hash.h"

namespace kiln::store {

struct EvictionCandidate {
  Digest plan_key;
  uint64_t compile_us = 0;
  double use = 0;          // decayed count of fetches
  uint64_t bytes = 0;      // record and kernels; shared kernels counted in full
  bool pinned = false;     // never chosen
  bool worthless = false;  // quarantined: chosen before all others
};

// Fetches lose half their weight in this time.
inline constexpr int64_t kUseHalfLifeMs = int64_t{24} * 3600 * 1000;
double DecayedUse(double use, int64_t elapsed_ms);

double EvictionWorth(const EvictionCandidate& candidate);

// Unpinned candidates in the order in which they should leave, least worth first; ties by plan key, so that the order
// is the same everywhere.
std::vector<Digest> EvictionOrder(std::span<const EvictionCandidate> candidates);

// Fill levels, as parts of the byte limit: eviction starts above the high one and ends below the low one.
inline constexpr double kHighWatermark = 0.90;
inline constexpr double kLowWatermark = 0.80;

}  // namespace kiln::store
