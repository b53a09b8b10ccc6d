// How a plan reads the weights of its segment: a keyed option of compile requests, plans and records.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln {

enum class WeightForm : uint8_t {
#define KILN_WEIGHT_FORM(value, name, text, doc) k##name = value,
#include "common/artifact/weight_forms.def"
#undef KILN_WEIGHT_FORM
};
std::string_view WeightFormText(WeightForm form);
// From the number in weight_forms.def; none: a number that the table has not.
std::optional<WeightForm> WeightFormFromNumber(uint8_t number);

}  // namespace kiln
