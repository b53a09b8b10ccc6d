#include "common/ops/activation.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>

namespace kiln {
namespace {

struct Row {
  std::string_view name;
  ActivationSpec spec;
  bool takes_alpha, takes_beta;
};
constexpr Row kRows[] = {
#define KILN_ACTIVATION(name, takes_alpha, alpha, takes_beta, beta) \
  {#name, {Activation::k##name, alpha, beta}, takes_alpha, takes_beta},
#include "common/ops/activations.def"
#undef KILN_ACTIVATION
};

bool SameName(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

Result<ActivationList> ReadActivations(const Attributes& attributes, int64_t directions,
                                       std::span<const Activation> defaults) {
  const std::span<const std::string> names = attributes.Texts("activations");
  const std::span<const double> alphas = attributes.Floats("activation_alpha");
  const std::span<const double> betas = attributes.Floats("activation_beta");
  ActivationList list;
  list.count = defaults.size() * static_cast<size_t>(directions);
  if (list.count > kActivationsMax)
    return Fail(ErrorCode::kInvalidArgument, std::to_string(directions) + " directions; there are at most 2");
  if (!names.empty() && names.size() != list.count) {
    return Fail(ErrorCode::kInvalidArgument, "attribute `activations` has " + std::to_string(names.size()) +
                                                 " entries; this op takes " + std::to_string(list.count));
  }
  size_t next_alpha = 0;
  size_t next_beta = 0;
  for (size_t i = 0; i < list.count; ++i) {
    const Row* row =
        names.empty()
            ? std::ranges::find(kRows, defaults[i % defaults.size()], [](const Row& r) { return r.spec.kind; })
            : std::ranges::find_if(kRows, [&](const Row& r) { return SameName(r.name, names[i]); });
    if (row == std::end(kRows)) return Fail(ErrorCode::kUnsupported, "activation '" + names[i] + "' is unknown");
    list.items[i] = row->spec;
    if (row->takes_alpha && next_alpha < alphas.size()) list.items[i].alpha = alphas[next_alpha++];
    if (row->takes_beta && next_beta < betas.size()) list.items[i].beta = betas[next_beta++];
  }
  return list;
}

}  // namespace kiln
