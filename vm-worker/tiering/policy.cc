#include "vm-worker/tiering/policy.h"

#include <algorithm>

namespace kiln {
namespace {

std::vector<SymbolGuard> FreeSymbols(const Segment& segment) {
  std::vector<SymbolGuard> symbols;
  for (size_t i = 0; i < segment.symbols.size(); ++i) {
    const Symbol& symbol = segment.body.symbols.symbol(static_cast<SymbolId>(i));
    symbols.push_back({symbol.range.min, symbol.range.max, symbol.divisor});
  }
  return symbols;
}

// Symbols known only inside the segment stay free: nobody can promise their value.
std::vector<SymbolGuard> ExactSymbols(const Segment& segment, const std::vector<int64_t>& values) {
  std::vector<SymbolGuard> symbols = FreeSymbols(segment);
  for (size_t i = 0; i < symbols.size(); ++i)
    if (values[i] >= 0) symbols[i] = {values[i], values[i], 1};
  return symbols;
}

// Microseconds of interpreter time seen so far, capped: a stand-in for predicted saving until a plan has been measured.
uint32_t PriorityOf(const SegmentProfile& profile) {
  return static_cast<uint32_t>(std::min<uint64_t>(profile.interpreted_ns / 1000, UINT32_MAX));
}

}  // namespace

std::optional<PlanWish> NextPlan(const TierPolicy& policy, const Segment& segment, const SegmentProfile& profile,
                                 const SegmentPlans& plans) {
  if (plans.request_pending || profile.shapes.empty()) return std::nullopt;
  const uint64_t calls = profile.interpreted_calls + profile.plan_calls;
  if (!plans.generic) {
    const bool warm = profile.interpreted_calls > policy.warm_up_runs;
    const bool hot = profile.interpreted_calls >= policy.hot_runs && profile.interpreted_ns >= policy.hot_ns;
    if (!warm || !hot) return std::nullopt;
    return PlanWish{segment.symbols.empty() ? PlanTier::kExact : PlanTier::kGeneric, FreeSymbols(segment),
                    profile.shapes.front().symbol_values, PriorityOf(profile)};
  }
  if (segment.symbols.empty() || plans.published >= policy.plans_max) return std::nullopt;
  for (const ShapeCount& shape : profile.shapes) {
    if (shape.calls < policy.exact_calls ||
        static_cast<double>(shape.calls) < policy.exact_share * static_cast<double>(calls))
      break;
    if (std::find(plans.exact.begin(), plans.exact.end(), shape.symbol_values) != plans.exact.end()) continue;
    return PlanWish{PlanTier::kExact, ExactSymbols(segment, shape.symbol_values), shape.symbol_values,
                    PriorityOf(profile)};
  }
  return std::nullopt;
}

}  // namespace kiln
