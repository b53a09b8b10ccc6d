// LineBudget: how many lines a second a thing that happens at the will of others may put into the log.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

namespace kiln {

// Thread-safe.
class LineBudget {
 public:
  static constexpr int kLinesPerSecond = 5;

  // Whether a line may be written now; then how many were held back since the last one.
  std::optional<uint64_t> Take(int64_t now_ns) {
    std::lock_guard lock(mutex_);
    const int64_t second = now_ns / 1'000'000'000;
    if (second != second_) {
      second_ = second;
      lines_ = 0;
    }
    if (lines_ >= kLinesPerSecond) {
      ++held_back_;
      return std::nullopt;
    }
    ++lines_;
    const uint64_t held_back = held_back_;
    held_back_ = 0;
    return held_back;
  }

 private:
  std::mutex mutex_;  // guards what follows
  int64_t second_ = -1;
  int lines_ = 0;
  uint64_t held_back_ = 0;
};

}  // namespace kiln
