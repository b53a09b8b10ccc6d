// When a service that ended by itself is started again: at once, then after ever longer pauses, and not for ever.
#pragma once

#include <cstdint>
#include <optional>

namespace kiln::cli {

// Of one process. Value type.
class Restarts {
 public:
  static constexpr int kInARow = 5;
  static constexpr int64_t kStableNs = 60'000'000'000;     // one that ran for so long begins anew
  static constexpr int64_t kFirstPauseNs = 1'000'000'000;  // then twice as long each time

  void OnStart(int64_t now_ns) { started_ns_ = now_ns; }
  // It ended, or could not be started. How long to wait before it is started again; nullopt: given up.
  std::optional<int64_t> OnEnd(int64_t now_ns) {
    if (now_ns - started_ns_ >= kStableNs) tries_ = 0;
    if (tries_ == kInARow) return std::nullopt;
    const int64_t pause = tries_ == 0 ? 0 : kFirstPauseNs << (tries_ - 1);
    ++tries_;
    return pause;
  }
  int tries() const { return tries_; }

 private:
  int64_t started_ns_ = 0;
  int tries_ = 0;
};

}  // namespace kiln::cli
