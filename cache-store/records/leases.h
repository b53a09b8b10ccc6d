// Leases: who works on which kernel or plan key, so that a fleet compiles it once. Expiry is monotonic while the
// process runs; the wall clock only carries a lease over a restart. Not thread-safe; Records guards it.
#pragma once

#include <string>
#include <unordered_map>

#include "cache-store/records/entry.h"
#include "common/base/clock.h"

namespace kiln::store {

class Leases {
 public:
  explicit Leases(const Clock& clock) : clock_(clock) {}

  void Load(const std::string& key, const Lease& lease);

  struct Outcome {
    bool granted = false;
    bool taken_over = false;    // granted after another holder's lease expired
    uint32_t remaining_ms = 0;  // not granted
    std::string holder;         // not granted
  };
  // Grants or extends, and writes into `batch`. When too many leases are out, the key is as one that is held for a
  // while.
  Outcome Claim(const std::string& key, const std::string& holder, uint32_t lease_ms, KvBatch& batch);
  // Only the holder's own.
  void Release(const std::string& key, const std::string& holder, KvBatch& batch);
  // Whoever holds it: the work is done.
  void Drop(const std::string& key, KvBatch& batch);
  void SweepExpired(KvBatch& batch);
  size_t size() const { return leases_.size(); }

 private:
  struct Held {
    std::string holder;
    int64_t expires_ns;
  };
  const Clock& clock_;
  std::unordered_map<std::string, Held> leases_;
};

}  // namespace kiln::store
