// Which plans and kernels the jobs of this process make right now: single flight within the process, beside the leases
// in the store that give it among processes (a lease does not tell two jobs of one holder apart). Who began a key is
// the only one here that takes a lease on it, and gives it back.
#pragma once

#include <functional>
#include <mutex>
#include <unordered_set>

#include "common/base/hash.h"

namespace kiln {

// Thread-safe.
class KeysInWork {
 public:
  // False if another job has it.
  bool Begin(const Digest& key) {
    std::lock_guard lock(mutex_);
    return keys_.insert(key).second;
  }
  void End(const Digest& key) {
    std::function<void(const Digest&)> on_end;
    {
      std::lock_guard lock(mutex_);
      keys_.erase(key);
      on_end = on_end_;
    }
    if (on_end) on_end(key);
  }
  // Called after each End, on its thread, without locks. Empty: nobody.
  void OnEnd(std::function<void(const Digest&)> on_end) {
    std::lock_guard lock(mutex_);
    on_end_ = std::move(on_end);
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::unordered_set<Digest, DigestHash> keys_;
  std::function<void(const Digest&)> on_end_;
};

}  // namespace kiln
