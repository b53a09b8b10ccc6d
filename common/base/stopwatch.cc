#include "common/base/stopwatch.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace kiln {
namespace {

#if defined(__x86_64__)
// The time stamp counter, which "invariant" processors run at one rate in every state (CPUID 8000'0007h, EDX bit 8).
class CounterClock final : public Clock {
 public:
  static bool IsInvariant() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
  }

  CounterClock() : first_(BothNow()) {
    constexpr int64_t kMeasuredNs = 200'000;
    Both last = first_;
    while (last.ns - first_.ns < kMeasuredNs) last = BothNow();
    ns_per_tick_ = (static_cast<unsigned __int128>(last.ns - first_.ns) << kFractionBits) / (last.ticks - first_.ticks);
  }
  int64_t NowNs() const override {
    return first_.ns + static_cast<int64_t>(((__rdtsc() - first_.ticks) * ns_per_tick_) >> kFractionBits);
  }
  int64_t WallMs() const override { return SystemClock().WallMs(); }

 private:
  struct Both {
    int64_t ns;
    uint64_t ticks;
  };
  // Both at one moment: of some tries the one that was interrupted least.
  static Both BothNow() {
    constexpr int kTries = 16;
    Both best{};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < kTries; ++i) {
      const uint64_t before = __rdtsc();
      const int64_t ns = SystemClock().NowNs();
      const uint64_t took = __rdtsc() - before;
      if (took >= least) continue;
      least = took;
      best = {ns, before + took / 2};
    }
    return best;
  }

  static constexpr int kFractionBits = 32;
  const Both first_;
  unsigned __int128 ns_per_tick_ = 0;
};
#endif

}  // namespace

const Clock& Stopwatch() {
#if defined(__x86_64__)
  static const Clock& chosen = [] -> const Clock& {
    if (!CounterClock::IsInvariant()) return SystemClock();
    static const CounterClock counter;
    return counter;
  }();
  return chosen;
#else
  return SystemClock();
#endif
}

}  // namespace kiln
