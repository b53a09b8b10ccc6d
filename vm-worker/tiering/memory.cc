// Plans of least worth leave when the worker's memory is tight.
#include "vm-worker/tiering/tier_controller.h"

namespace kiln {
namespace {

constexpr double kUseDecay = 0.99;  // per round, which come 50 ms apart or with events: calls of seconds ago count half

int64_t BytesOf(const PlanEntry& entry) {
  int64_t bytes = 1;
  for (const auto& linked : entry.linked) bytes += linked->bytes();
  return bytes + entry.linked.front()->packed_bytes();
}

}  // namespace

// One plan a round, until there is room again: what it held is free once its readers have left. It comes back after its
// pause, if there is room then.
void TierController::MakeRoom() {
  if (options_.budget == nullptr) return;
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups) {
      group.use = group.use * kUseDecay + static_cast<double>(group.profile.plan_calls - group.counted_calls);
      group.counted_calls = group.profile.plan_calls;
    }
  if (!options_.budget->IsTight()) return;
  options_.budget->TakeRefusals();
  ModelState* worst_state = nullptr;
  Group* worst_group = nullptr;
  const PlanKey* worst = nullptr;
  double least = 0;
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups)
      for (const auto& [key, entry] : group.plans) {
        const double worth = (group.IsReplaced(entry) ? 1 : group.use + 1) / static_cast<double>(BytesOf(entry));
        if (worst != nullptr && worth >= least) continue;
        worst_state = &state;
        worst_group = &group;
        worst = &key;
        least = worth;
      }
  if (worst == nullptr) return;
  const PlanKey key = *worst;
  Drop(*worst_state, *worst_group, key, MissReason::kNoMemory, "memory is tight: " + options_.budget->Text(),
       Blame::kNone);
}

}  // namespace kiln
