#include "common/artifact/weight_form.h"

namespace kiln {

std::string_view WeightFormText(WeightForm form) {
  switch (form) {
#define KILN_WEIGHT_FORM(value, name, text, doc) \
  case WeightForm::k##name:                      \
    return text;
#include "common/artifact/weight_forms.def"
#undef KILN_WEIGHT_FORM
  }
  return "unknown";
}

std::optional<WeightForm> WeightFormFromNumber(uint8_t number) {
  switch (static_cast<WeightForm>(number)) {
#define KILN_WEIGHT_FORM(value, name, text, doc) \
  case WeightForm::k##name:                      \
    return WeightForm::k##name;
#include "common/artifact/weight_forms.def"
#undef KILN_WEIGHT_FORM
  }
  return std::nullopt;
}

}  // namespace kiln
