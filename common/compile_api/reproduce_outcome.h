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
// Values count from 1; index 0 of a table by outcome is unused.
inline constexpr size_t kReproduceOutcomes = 1
#define KILN_REPRODUCE(value, name, text, doc) +1
#include "common/compile_api/reproduce_outcomes.def"
#undef KILN_REPRODUCE
    ;
#define KILN_REPRODUCE(value, name, text, doc) static_assert(value >= 1 && value < kReproduceOutcomes);
#include "common/compile_api/reproduce_outcomes.def"
#undef KILN_REPRODUCE
std::string_view ReproduceOutcomeText(ReproduceOutcome outcome);
std::optional<ReproduceOutcome> ReproduceOutcomeFromNumber(uint8_t number);

struct ReproduceVerdict {
  ReproduceOutcome outcome = ReproduceOutcome::kUndecided;
  std::string detail;

  // Whether the plan was wrong where it was tried as well.
  bool IsReproduced() const { return outcome == ReproduceOutcome::kMismatch || outcome == ReproduceOutcome::kFault; }
};

}  // namespace kiln
