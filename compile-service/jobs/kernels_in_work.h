// Which kernels the jobs of this process compile right now: single flight within the process, beside the leases in the
// store that give it among processes (a lease does not tell two jobs of one holder apart).
#pragma once

#include <mutex>
#include <unordered_set>

#include "common/base/hash.h"

namespace kiln {

// Thread-safe.
class KernelsInWork {
 public:
  // False if another job has it.
  bool Begin(const Digest& kernel_key) {
    std::lock_guard lock(mutex_);
    return keys_.insert(kernel_key).second;
  }
  void End(const Digest& kernel_key) {
    std::lock_guard lock(mutex_);
    keys_.erase(kernel_key);
  }

 private:
  std::mutex mutex_;  // guards keys_
  std::unordered_set<Digest, DigestHash> keys_;
};

}  // namespace kiln
