// EpochDomain: safe reclamation of plans that readers may still be running.
//
// A reader announces the global epoch once per request and withdraws it at the end; that is all the call path pays. A
// writer unlinks an object, then retires it: it is freed when every announced epoch is newer than the retirement.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/limits.h"

namespace kiln {

// Thread-safe. Readers are registered per thread; at most kEpochReadersMax at once.
class EpochDomain {
 public:
  EpochDomain() = default;
  ~EpochDomain();  // precondition: no reader is inside
  EpochDomain(const EpochDomain&) = delete;
  EpochDomain& operator=(const EpochDomain&) = delete;

  // A reader's place; -1 when all are taken. Each place belongs to one thread at a time.
  int RegisterReader();
  void UnregisterReader(int reader);

  // Between Enter and Leave no object that was reachable at Enter is freed.
  void Enter(int reader) {
    readers_[static_cast<size_t>(reader)].epoch.store(global_.load(std::memory_order_acquire),
                                                      std::memory_order_seq_cst);
  }
  void Leave(int reader) { readers_[static_cast<size_t>(reader)].epoch.store(kIdle, std::memory_order_release); }

  // Call after unlinking. Takes over the reference; drops it in a later Reclaim.
  void Retire(std::shared_ptr<const void> object);
  // Frees what no reader can see any more; returns how many objects still wait.
  size_t Reclaim();

 private:
  static constexpr uint64_t kIdle = 0;
  struct alignas(64) ReaderPlace {
    std::atomic<uint64_t> epoch{kIdle};
    std::atomic<bool> taken{false};
  };
  struct Retired {
    uint64_t epoch;
    std::shared_ptr<const void> object;
  };

  std::atomic<uint64_t> global_{1};
  std::array<ReaderPlace, limits::kEpochReadersMax> readers_;
  std::mutex mutex_;  // guards retired_
  std::vector<Retired> retired_;
};

// Enter and Leave as a scope.
class EpochScope {
 public:
  EpochScope(EpochDomain& domain, int reader) : domain_(domain), reader_(reader) { domain_.Enter(reader_); }
  ~EpochScope() { domain_.Leave(reader_); }
  EpochScope(const EpochScope&) = delete;
  EpochScope& operator=(const EpochScope&) = delete;

 private:
  EpochDomain& domain_;
  int reader_;
};

}  // namespace kiln
