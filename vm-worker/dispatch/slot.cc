#include "vm-worker/dispatch/slot.h"

#include <algorithm>

#include "common/artifact/target.h"
#include "common/base/check.h"

namespace kiln {
namespace {

int RungOf(const LinkedPlan& plan) {
  const std::optional<Target> target = TargetFromName(plan.plan().target);
  return target ? InfoOf(*target).rung : 0;
}

uint64_t HashValues(std::span<const int64_t> values) {
  return FastHash({reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
}

}  // namespace

std::vector<int64_t> ExactValues(const LinkedPlan& plan) {
  std::vector<int64_t> values;
  const Guard& guard = plan.plan().guard;
  for (size_t i = 0; i < guard.symbols.size(); ++i) {
    const bool inside = plan.segment().symbols[i].kind == SymbolSource::Kind::kValueDim;
    values.push_back(inside ? -1 : guard.symbols[i].min);
  }
  return values;
}

PlanList::PlanList(std::vector<std::shared_ptr<const LinkedPlan>> plans, uint64_t version)
    : plans_(std::move(plans)), version_(version) {
  KILN_CHECK(plans_.size() <= limits::kSlotPlansMax);
  std::stable_sort(plans_.begin(), plans_.end(), [](const auto& a, const auto& b) {
    const bool exact_a = a->exact(), exact_b = b->exact();
    if (exact_a != exact_b) return exact_a;
    const Guard &guard_a = a->plan().guard, &guard_b = b->plan().guard;
    if (MoreSpecific(guard_a, guard_b)) return true;
    return !MoreSpecific(guard_b, guard_a) && RungOf(*a) > RungOf(*b);
  });
  for (size_t i = 0; i < plans_.size() && plans_[i]->exact(); ++i) {
    exact_.emplace(HashValues(ExactValues(*plans_[i])), i);
    first_general_ = i + 1;
  }
}

const std::shared_ptr<const LinkedPlan>* PlanList::Select(std::span<const int64_t> symbol_values,
                                                          std::span<const TensorRef> inputs, bool device) const {
  const auto holds = [&](size_t i) {
    if (!device && plans_[i]->on_device()) return false;
    return !CheckGuard(plans_[i]->plan().guard, plans_[i]->plan().symbols, symbol_values, inputs).has_value();
  };
  const auto [begin, end] = exact_.equal_range(HashValues(symbol_values));
  size_t first = plans_.size();
  for (auto it = begin; it != end; ++it)
    if (it->second < first && holds(it->second)) first = it->second;
  if (first < plans_.size()) return &plans_[first];
  for (size_t i = first_general_; i < plans_.size(); ++i)
    if (holds(i)) return &plans_[i];
  return nullptr;
}

void Slot::Publish(std::vector<std::shared_ptr<const LinkedPlan>> plans) {
  const PlanList* fresh = plans.empty() ? nullptr : new PlanList(std::move(plans), next_version_++);
  const PlanList* old = list_.exchange(fresh, std::memory_order_seq_cst);
  if (old != nullptr) epochs_.Retire(std::shared_ptr<const PlanList>(old));
}

std::vector<std::shared_ptr<const LinkedPlan>> Slot::plans() const {
  const PlanList* list = Load();
  return list == nullptr ? std::vector<std::shared_ptr<const LinkedPlan>>()
                         : std::vector<std::shared_ptr<const LinkedPlan>>(list->plans().begin(), list->plans().end());
}

}  // namespace kiln
