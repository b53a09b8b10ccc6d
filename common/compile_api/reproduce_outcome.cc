#include "common/compile_api/reproduce_outcome.h"

namespace kiln {

std::string_view ReproduceOutcomeText(ReproduceOutcome outcome) {
  switch (outcome) {
#define KILN_REPRODUCE(value, name, text, doc) \
  case ReproduceOutcome::k##name:              \
    return text;
#include "common/compile_api/reproduce_outcomes.def"
#undef KILN_REPRODUCE
  }
  return "";
}

std::optional<ReproduceOutcome> ReproduceOutcomeFromNumber(uint8_t number) {
  switch (number) {
#define KILN_REPRODUCE(value, name, text, doc) \
  case value:                                  \
    return ReproduceOutcome::k##name;
#include "common/compile_api/reproduce_outcomes.def"
#undef KILN_REPRODUCE
  }
  return std::nullopt;
}

}  // namespace kiln
