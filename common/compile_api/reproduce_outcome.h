// What a compile service found when it ran a plan that a worker accuses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kiln {

enum class ReproduceOutcome : uint8_t {
#define KILN_REPRODUCE(value, name, text, doc) k##name = value,
#include "common/compile_api/reproduce_outcomes.def"
#undef KILN_REPRODUCE
};
inline constexpr size_t kReproduceOutcomes = 6;  // one more than the last value
std::string_view ReproduceOutcomeText(ReproduceOutcome outcome);
std::optional<ReproduceOutcome> ReproduceOutcomeFromNumber(uint8_t number);

struct ReproduceVerdict {
  ReproduceOutcome outcome = ReproduceOutcome::kUndecided;
  std::string detail;

  // Whether the plan was wrong where it was tried as well.
  bool IsReproduced() const { return outcome == ReproduceOutcome::kMismatch || outcome == ReproduceOutcome::kFault; }
};

}  // namespace kiln
