#include "compile-service/lower/take_places.h"

#include <algorithm>

#include "compile-service/ir/in_place.h"

namespace kiln::lower {
namespace {

// What a pointer of a step views in the arena, or nothing.
const PlanValue* Temporary(const Plan& plan, const KernelStep& step, int32_t pointer) {
  const auto p = static_cast<size_t>(pointer);
  if (p >= step.pointers.size() || static_cast<size_t>(step.pointers[p]) >= plan.values.size()) return nullptr;
  const PlanValue& value = plan.values[static_cast<size_t>(step.pointers[p])];
  const bool is_temporary =
      value.storage == StorageKind::kArena && static_cast<size_t>(value.index) < plan.buffers.size();
  return is_temporary ? &value : nullptr;
}

bool Views(const PlanValue& value, int32_t buffer) {
  return value.storage == StorageKind::kArena && value.index == buffer;
}

// The pair's buffers, when the one may take the place of the other in step `s`.
struct Places {
  int32_t to, from;
};
std::optional<Places> PlacesOf(const Plan& plan, int32_t s, const KernelStep& step, const ir::InPlaceOperand& pair) {
  const PlanValue *stored = Temporary(plan, step, pair.stored), *loaded = Temporary(plan, step, pair.loaded);
  if (stored == nullptr || loaded == nullptr) return std::nullopt;
  const PlanBuffer& to = plan.buffers[static_cast<size_t>(stored->index)];
  const PlanBuffer& from = plan.buffers[static_cast<size_t>(loaded->index)];
  if (to.first_step != s || from.last_step != s || from.first_step >= s) return std::nullopt;
  if (to.bytes != from.bytes || stored->offset != loaded->offset) return std::nullopt;
  if (DTypeBytes(stored->dtype) != DTypeBytes(loaded->dtype)) return std::nullopt;
  // No other view of either in this step.
  const auto views = std::ranges::count_if(step.pointers, [&](int32_t index) {
    const auto i = static_cast<size_t>(index);
    return i < plan.values.size() && (Views(plan.values[i], stored->index) || Views(plan.values[i], loaded->index));
  });
  if (views != 2) return std::nullopt;
  for (const auto& [a, b] : pair.equal_arguments) {
    const auto first = static_cast<size_t>(a), second = static_cast<size_t>(b);
    if (std::max(first, second) >= step.dims.size() || step.dims[first] != step.dims[second]) return std::nullopt;
  }
  return Places{stored->index, loaded->index};
}

}  // namespace

void TakePlaces(Plan& plan, std::span<const ir::KernelSpec> specs) {
  std::vector<bool> taken(plan.buffers.size(), false);
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const auto* step = std::get_if<KernelStep>(&plan.steps[s].step);
    if (step == nullptr) continue;
    for (const ir::InPlaceOperand& pair : ir::InPlaceOperands(specs[static_cast<size_t>(step->kernel)])) {
      const std::optional<Places> places = PlacesOf(plan, static_cast<int32_t>(s), *step, pair);
      if (!places || taken[static_cast<size_t>(places->from)]) continue;
      PlanBuffer& buffer = plan.buffers[static_cast<size_t>(places->to)];
      if (buffer.in_place_of >= 0) continue;
      buffer.in_place_of = places->from;
      taken[static_cast<size_t>(places->from)] = true;
    }
  }
}

Status CheckPlaces(const Plan& plan, std::span<const ir::KernelSpec> specs) {
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const PlanBuffer& buffer = plan.buffers[b];
    if (buffer.in_place_of == -1) continue;
    const auto s = static_cast<size_t>(buffer.first_step);
    const auto* step = s < plan.steps.size() ? std::get_if<KernelStep>(&plan.steps[s].step) : nullptr;
    std::vector<ir::InPlaceOperand> pairs;
    if (step != nullptr && static_cast<size_t>(step->kernel) < specs.size())
      pairs = ir::InPlaceOperands(specs[static_cast<size_t>(step->kernel)]);
    const bool allowed = std::ranges::any_of(pairs, [&](const ir::InPlaceOperand& pair) {
      const std::optional<Places> places = PlacesOf(plan, buffer.first_step, *step, pair);
      return places && places->to == static_cast<int32_t>(b) && places->from == buffer.in_place_of;
    });
    if (!allowed)
      return Fail(ErrorCode::kCompileFailed, "buffer " + std::to_string(b) + " in the place of buffer " +
                                                 std::to_string(buffer.in_place_of) + ", which the kernel of step " +
                                                 std::to_string(buffer.first_step) + " does not allow");
  }
  return {};
}

}  // namespace kiln::lower
