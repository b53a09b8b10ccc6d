#include "vm-worker/dispatch/kernel_pool.h"

#include <algorithm>

#include "common/base/clock.h"

namespace kiln {
namespace {

// Parts per thread: enough that one that starts late or runs slowly leaves its share to the others.
constexpr int64_t kPartsPerThread = 4;
// About what waking a thread costs on a virtual machine.
constexpr int64_t kSpinNs = 50'000;
constexpr int kLooksPerClockRead = 32;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Until `done`, which needs no lock, says so, or kSpinNs have passed.
template <typename Done>
void Spin(const Done& done) {
  const int64_t end = SystemClock().NowNs() + kSpinNs;
  do {
    for (int i = 0; i < kLooksPerClockRead; ++i) {
      if (done()) return;
      Pause();
    }
  } while (SystemClock().NowNs() < end);
}

}  // namespace

KernelPool::KernelPool(int threads) {
  for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { Help(); });
}

KernelPool::~KernelPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void KernelPool::Run(KilnKernel entry, const KilnKernelArgs& args, int64_t range, int64_t parts_max) {
  if (range <= 0) return;
  const int64_t parts = std::min({parts_max, range, kPartsPerThread * threads()});
  if (parts <= 1 || helpers_.empty()) {
    entry(&args, 0, range);
    return;
  }
  Job job{.entry = entry, .args = &args, .range = range, .part = (range + parts - 1) / parts};
  int64_t granted = 0;
  {
    std::lock_guard lock(mutex_);
    ++callers_;
    const auto in_use = static_cast<int64_t>(tickets_.size()) + busy_;
    granted = std::clamp<int64_t>(threads() - callers_ - in_use, 0, parts - 1);
    tickets_.insert(tickets_.end(), static_cast<size_t>(granted), &job);
    tickets_waiting_.store(tickets_.size(), std::memory_order_relaxed);
  }
  for (int64_t i = 0; i < granted; ++i) wake_.notify_one();
  RunParts(job);
  {
    std::lock_guard lock(mutex_);
    std::erase(tickets_, &job);
    tickets_waiting_.store(tickets_.size(), std::memory_order_relaxed);
    --callers_;
    if (job.helpers == 0) return;
  }
  Spin([&] { return job.helpers.load(std::memory_order_relaxed) == 0; });
  // The lock also says that the helper is through with the job.
  std::unique_lock lock(mutex_);
  job.done.wait(lock, [&] { return job.helpers == 0; });
}

uint64_t KernelPool::RunParts(Job& job) {
  uint64_t parts = 0;
  for (;;) {
    const int64_t begin = job.next.fetch_add(job.part, std::memory_order_relaxed);
    if (begin >= job.range) return parts;
    job.entry(job.args, begin, std::min(begin + job.part, job.range));
    ++parts;
  }
}

void KernelPool::Help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || !tickets_.empty(); });
    if (tickets_.empty()) return;
    Job& job = *tickets_.front();
    tickets_.pop_front();
    tickets_waiting_.store(tickets_.size(), std::memory_order_relaxed);
    ++job.helpers;
    ++busy_;
    lock.unlock();
    helped_parts_.fetch_add(RunParts(job), std::memory_order_relaxed);
    lock.lock();
    --busy_;
    // Under the lock: the job is gone once its caller has seen 0.
    if (--job.helpers == 0) job.done.notify_one();
    if (!tickets_.empty()) continue;
    lock.unlock();
    Spin([&] { return tickets_waiting_.load(std::memory_order_relaxed) != 0; });
    lock.lock();
  }
}

}  // namespace kiln
