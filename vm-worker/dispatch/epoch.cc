#include "vm-worker/dispatch/epoch.h"

#include <algorithm>

#include "common/base/limits.h"

namespace kiln {

EpochDomain::~EpochDomain() = default;

int EpochDomain::RegisterReader() {
  for (int i = 0; i < limits::kEpochReadersMax; ++i) {
    bool expected = false;
    if (readers_[static_cast<size_t>(i)].taken.compare_exchange_strong(expected, true)) return i;
  }
  return -1;
}

void EpochDomain::UnregisterReader(int reader) {
  Leave(reader);
  readers_[static_cast<size_t>(reader)].taken.store(false);
}

void EpochDomain::Retire(std::shared_ptr<const void> object) {
  // A reader that announces an epoch above the one returned here loaded `global_` after this increment, hence after the
  // object was unlinked, and cannot have found it.
  const uint64_t epoch = global_.fetch_add(1, std::memory_order_seq_cst);
  std::lock_guard lock(mutex_);
  retired_.push_back({epoch, std::move(object)});
}

size_t EpochDomain::Reclaim() {
  std::vector<Retired> freed;  // destroyed after the lock is gone: destructors unmap code
  // The readers are looked at under the lock: what is retired after that look might be in use by a reader that entered
  // after it.
  std::lock_guard lock(mutex_);
  uint64_t oldest = UINT64_MAX;
  for (const ReaderPlace& place : readers_) {
    const uint64_t epoch = place.epoch.load(std::memory_order_seq_cst);
    if (epoch != kIdle) oldest = std::min(oldest, epoch);
  }
  auto dead = std::partition(retired_.begin(), retired_.end(), [&](const Retired& r) { return r.epoch >= oldest; });
  std::move(dead, retired_.end(), std::back_inserter(freed));
  retired_.erase(dead, retired_.end());
  return retired_.size();
}

}  // namespace kiln
