// KernelPool: helper threads that take parts of large kernels' ranges.
//
// One pool serves all request threads. A caller works on its own range from the start and never waits for a helper to
// wake: helpers join as they come, and what is left when the caller is through is withdrawn. Callers and helpers
// together are at most `threads`, so that requests that run at the same time do not crowd each other out. A kernel
// gives the same bits however its range is cut.
//
// The large kernels of a plan follow each other by microseconds, and a thread that sleeps takes tens of them to wake.
// So a helper that has run out of work looks for more about as long as a wake takes before it sleeps, and a caller
// looks as long for its helpers' last parts: whatever comes next, that is at most twice the least that waiting costs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "common/artifact/kernel_abi.h"

namespace kiln {

// Thread-safe. No call may be running when it is destroyed.
class KernelPool {
 public:
  // `threads`: kernels run on at most this many at a time, the callers among them; at least 1.
  explicit KernelPool(int threads);
  ~KernelPool();
  KernelPool(const KernelPool&) = delete;
  KernelPool& operator=(const KernelPool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }
  // Runs [0, range) in up to `parts_max` parts (>= 1) and returns when all are done.
  void Run(KilnKernel entry, const KilnKernelArgs& args, int64_t range, int64_t parts_max);
  // Parts that helpers ran so far.
  uint64_t helped_parts() const { return helped_parts_.load(std::memory_order_relaxed); }

 private:
  struct Job {
    KilnKernel entry;
    const KilnKernelArgs* args;
    int64_t range, part;
    std::atomic<int64_t> next{0};
    std::atomic<int> helpers{0};  // at work; changes under mutex_
    std::condition_variable done;
  };

  static uint64_t RunParts(Job& job);
  void Help();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job*> tickets_;                // one per helper that may join
  std::atomic<size_t> tickets_waiting_{0};  // tickets_.size(), for a look without the lock
  int callers_ = 0, busy_ = 0;
  bool stop_ = false;
  std::atomic<uint64_t> helped_parts_{0};
  std::vector<std::thread> helpers_;
};

}  // namespace kiln
