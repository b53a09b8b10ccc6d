#include "common/ops/attribute_texts.h"

#include <algorithm>
#include <cctype>

namespace kiln {
namespace {

// Names of activations.def, each followed by '|'.
constexpr std::string_view kActivations =
#define KILN_ACTIVATION(name, takes_alpha, alpha, takes_beta, beta) #name "|"
#include "common/ops/activations.def"
#undef KILN_ACTIVATION
    ;
constexpr std::string_view kActivationNames = kActivations.substr(0, kActivations.size() - 1);

struct Row {
  TensorOp op;
  std::string_view name;
  AttributeType type;
  std::string_view legal = {};
};
constexpr Row kRows[] = {
#define KILN_OP_ATTRIBUTE(op, name, type, ...) \
  {TensorOp::k##op, name, AttributeType::k##type __VA_OPT__(, ) __VA_ARGS__},
#include "common/ops/op_attributes.def"
#undef KILN_OP_ATTRIBUTE
};
constexpr bool IsText(AttributeType type) {
  return type == AttributeType::kText || type == AttributeType::kTexts;
}
static_assert(std::ranges::all_of(kRows, [](const Row& row) { return IsText(row.type) == !row.legal.empty(); }),
              "op_attributes.def states the legal values of texts, and of nothing else");

bool SameText(std::string_view a, std::string_view b, bool any_case) {
  return std::ranges::equal(a, b, [any_case](unsigned char x, unsigned char y) {
    return x == y || (any_case && std::tolower(x) == std::tolower(y));
  });
}

}  // namespace

std::string_view LegalTexts(TensorOp op, std::string_view attribute) {
  const Row* row = std::ranges::find_if(kRows, [&](const Row& r) { return r.op == op && r.name == attribute; });
  return row == std::end(kRows) ? std::string_view() : row->legal;
}

Status CheckText(std::string_view legal, std::string_view attribute, std::string_view text, bool in_a_list) {
  if (legal == "*") return {};
  std::string names;
  for (size_t at = 0; at <= legal.size();) {
    const size_t end = std::min(legal.find('|', at), legal.size());
    const std::string_view value = legal.substr(at, end - at);
    if (SameText(value, text, in_a_list)) return {};
    if (!value.empty()) names += (names.empty() ? "" : ", ") + std::string(value);
    at = end + 1;
  }
  constexpr size_t kShownMax = 100;
  return Fail(ErrorCode::kInvalidArgument, "attribute '" + std::string(attribute) + "' is '" +
                                               std::string(text.substr(0, kShownMax)) + "'; it is one of " + names);
}

}  // namespace kiln
