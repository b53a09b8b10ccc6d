#include "cache-store/records/leases.h"

#include <algorithm>

#include "common/base/limits.h"

namespace kiln::store {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr uint32_t kFullRetryMs = 1'000;

}  // namespace

void Leases::Load(const std::string& key, const Lease& lease) {
  const int64_t left_ms = std::clamp<int64_t>(lease.expires_wall_ms - clock_.WallMs(), 0, limits::kLeaseMsMax);
  leases_[key] = {lease.holder, clock_.NowNs() + left_ms * kNsPerMs};
}

Leases::Outcome Leases::Claim(const std::string& key, const std::string& holder, uint32_t lease_ms, KvBatch& batch) {
  const int64_t now = clock_.NowNs();
  const auto held = leases_.find(key);
  Outcome outcome{.granted = true};
  if (held != leases_.end() && held->second.holder != holder) {
    if (held->second.expires_ns > now)
      return Outcome{.remaining_ms = static_cast<uint32_t>((held->second.expires_ns - now) / kNsPerMs + 1),
                     .holder = held->second.holder};
    outcome.taken_over = true;
  }
  if (held == leases_.end() && leases_.size() >= limits::kLeasesMax)
    return Outcome{.remaining_ms = kFullRetryMs, .holder = {}};
  const int64_t length_ms = std::clamp(lease_ms, limits::kLeaseMsMin, limits::kLeaseMsMax);
  leases_[key] = {holder, now + length_ms * kNsPerMs};
  batch.Put(Space::kLeases, key, Seal(Space::kLeases, key, EncodeLease({holder, clock_.WallMs() + length_ms})));
  return outcome;
}

void Leases::Release(const std::string& key, const std::string& holder, KvBatch& batch) {
  const auto held = leases_.find(key);
  if (held != leases_.end() && held->second.holder == holder) Drop(key, batch);
}

void Leases::Drop(const std::string& key, KvBatch& batch) {
  if (leases_.erase(key) != 0) batch.Delete(Space::kLeases, key);
}

void Leases::SweepExpired(KvBatch& batch) {
  const int64_t now = clock_.NowNs();
  std::erase_if(leases_, [&](const auto& entry) {
    if (entry.second.expires_ns > now) return false;
    batch.Delete(Space::kLeases, entry.first);
    return true;
  });
}

}  // namespace kiln::store
