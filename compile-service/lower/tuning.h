// The tuned tier's share of lowering: which kernels of a plan are worth timing in several forms, and the plan that
// takes other forms.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compile-service/lower/lower_segment.h"

namespace kiln::lower {

// One call of a kernel at the hints, and how often a run of the plan makes it.
struct TunedCall {
  std::vector<int64_t> dims;
  int64_t uses = 0;
  bool operator==(const TunedCall&) const = default;
};

// A kernel with the forms that it could have. All compute the same; floats may be summed in another order.
struct Tunable {
  int32_t kernel = 0;                 // index into the lowered specs
  std::vector<ir::KernelSpec> forms;  // the plan's own first, then others in the order of the cost model
  std::vector<TunedCall> calls;       // those with the most work
};

inline constexpr size_t kTunedKernelsMax = 6;   // the hottest by estimated work…
inline constexpr double kTunedShareMin = 0.03;  // …that have at least this share of it
inline constexpr size_t kTunedFormsMax = 5;
inline constexpr size_t kTunedCallsMax = 3;

// The hottest kernels that have other forms: tiles of contractions (of one width where B is packed, so that packed
// weights stay shared with other plans) and of attention, columns of windows. Deterministic.
std::vector<Tunable> FindTunable(const LoweredSegment& lowered, Target target, std::span<const int64_t> hints);

// Takes form `chosen[i]` for `tunable[i]`: specs, ranges and labels; kernels that become equal become one.
Status TakeForms(LoweredSegment& lowered, Target target, std::span<const Tunable> tunable,
                 std::span<const uint32_t> chosen);

}  // namespace kiln::lower
