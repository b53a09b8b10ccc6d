// MemoryBudget: one limit for what a worker holds, or holds on a device, booked by use.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/result.h"

namespace kiln {

enum class MemoryUse : uint8_t {
#define KILN_MEMORY_USE(value, name, text, doc) k##name = value,
#include "common/base/memory_uses.def"
#undef KILN_MEMORY_USE
};
inline constexpr size_t kMemoryUses = 0
#define KILN_MEMORY_USE(value, name, text, doc) +1
#include "common/base/memory_uses.def"
#undef KILN_MEMORY_USE
    ;
std::string_view MemoryUseText(MemoryUse use);

// What a refusal is to others.
enum class WithoutRoom : uint8_t {
  kMakeRoom,   // memory is tight: whoever can gives some back
  kGoWithout,  // nothing: what was refused can wait or be done without
};

// Thread-safe; never blocks.
class MemoryBudget {
 public:
  static constexpr int64_t kNoLimit = INT64_MAX;
  // `what` and `flag` name it and what sets it, for who is refused.
  explicit MemoryBudget(int64_t limit_bytes = kNoLimit, std::string_view what = "the worker's memory",
                        std::string_view flag = "--memory-bytes")
      : limit_(limit_bytes), what_(what), flag_(flag) {}

  // ResourceExhausted says what the limit is used by.
  Status Reserve(MemoryUse use, int64_t bytes, WithoutRoom without_room = WithoutRoom::kMakeRoom);
  void Release(MemoryUse use, int64_t bytes);

  int64_t limit() const { return limit_; }
  int64_t used() const { return total_.load(std::memory_order_relaxed); }
  int64_t used(MemoryUse use) const { return by_use_[static_cast<size_t>(use)].load(std::memory_order_relaxed); }
  // Above nine tenths of the limit, or something was refused since the last call of TakeRefusals.
  bool IsTight() const { return used() > limit_ / 10 * 9 || refusals_.load(std::memory_order_relaxed) > 0; }
  uint64_t TakeRefusals() { return refusals_.exchange(0); }
  std::string Text() const;  // "arenas 1048576, plans 4096"; uses of nothing left out

 private:
  const int64_t limit_;
  const std::string_view what_, flag_;  // literals
  std::atomic<int64_t> total_{0};
  std::array<std::atomic<int64_t>, kMemoryUses> by_use_{};
  std::atomic<uint64_t> refusals_{0};
};

// A reservation that ends with it. Movable; refers to the budget.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  // A null budget has room for everything.
  static Result<MemoryCharge> Take(MemoryBudget* budget, MemoryUse use, int64_t bytes,
                                   WithoutRoom without_room = WithoutRoom::kMakeRoom);
  MemoryCharge(MemoryCharge&& other) noexcept { *this = std::move(other); }
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge() { End(); }
  int64_t bytes() const { return bytes_; }
  // At most so many of its bytes as a reservation of their own.
  MemoryCharge Split(int64_t bytes);

 private:
  void End();
  MemoryBudget* budget_ = nullptr;
  MemoryUse use_{};
  int64_t bytes_ = 0;
};

// What this process may use of the machine: the smaller of physical memory and its control group's limit. At least
// 64 MiB.
int64_t MachineMemoryBytes();

}  // namespace kiln
