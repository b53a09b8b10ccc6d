#include "common/base/memory_budget.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

namespace kiln {
namespace {

constexpr int64_t kMachineBytesMin = int64_t{64} << 20;

// The number in a file, or none ("max", no such file).
int64_t LimitIn(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return error == std::errc() && end == text.data() + text.size() && bytes > 0 ? bytes : MemoryBudget::kNoLimit;
}

// Of control group version 2 (a line "0::PATH") or 1 ("N:memory:PATH"): the least limit from the group upwards.
int64_t ControlGroupBytes() {
  int64_t least = MemoryBudget::kNoLimit;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* name = controllers.empty() ? "/memory.max" : "/memory.limit_in_bytes";
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      least = std::min(least, LimitIn(root + (path == "/" ? "" : path) + name));
      if (path.empty() || path.rfind('/') == std::string::npos) break;
    }
  }
  return least;
}

}  // namespace

std::string_view MemoryUseText(MemoryUse use) {
  switch (use) {
#define KILN_MEMORY_USE(value, name, text, doc) \
  case MemoryUse::k##name:                      \
    return text;
#include "common/base/memory_uses.def"
#undef KILN_MEMORY_USE
  }
  return "unknown";
}

Status MemoryBudget::Reserve(MemoryUse use, int64_t bytes, WithoutRoom without_room) {
  int64_t now = total_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ - now) {
      // Nothing makes room for more than the limit.
      if (bytes <= limit_ && without_room == WithoutRoom::kMakeRoom) refusals_.fetch_add(1, std::memory_order_relaxed);
      return Fail(ErrorCode::kResourceExhausted, std::to_string(bytes) + " bytes of " +
                                                     std::string(MemoryUseText(use)) + " pass " + std::string(what_) +
                                                     " of " + std::to_string(limit_) + " bytes (" + std::string(flag_) +
                                                     "), used by: " + Text());
    }
  } while (!total_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
  by_use_[static_cast<size_t>(use)].fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

void MemoryBudget::Release(MemoryUse use, int64_t bytes) {
  by_use_[static_cast<size_t>(use)].fetch_sub(bytes, std::memory_order_relaxed);
  total_.fetch_sub(bytes, std::memory_order_relaxed);
}

std::string MemoryBudget::Text() const {
  std::string text;
  for (size_t i = 0; i < kMemoryUses; ++i) {
    const int64_t bytes = used(static_cast<MemoryUse>(i));
    if (bytes == 0) continue;
    if (!text.empty()) text += ", ";
    text += std::string(MemoryUseText(static_cast<MemoryUse>(i))) + " " + std::to_string(bytes);
  }
  return text.empty() ? "nothing" : text;
}

Result<MemoryCharge> MemoryCharge::Take(MemoryBudget* budget, MemoryUse use, int64_t bytes, WithoutRoom without_room) {
  MemoryCharge charge;
  charge.use_ = use;
  charge.bytes_ = bytes;
  if (budget == nullptr) return charge;
  RETURN_IF_ERROR(budget->Reserve(use, bytes, without_room));
  charge.budget_ = budget;
  return charge;
}

MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  if (this == &other) return *this;
  End();
  budget_ = std::exchange(other.budget_, nullptr);
  use_ = other.use_;
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

MemoryCharge MemoryCharge::Split(int64_t bytes) {
  MemoryCharge part;
  part.budget_ = budget_;
  part.use_ = use_;
  part.bytes_ = std::min(bytes, bytes_);
  bytes_ -= part.bytes_;
  return part;
}

void MemoryCharge::End() {
  if (budget_ != nullptr) budget_->Release(use_, bytes_);
  budget_ = nullptr;
  bytes_ = 0;
}

int64_t MachineMemoryBytes() {
  const int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::max(kMachineBytesMin, std::min(physical, ControlGroupBytes()));
}

}  // namespace kiln
