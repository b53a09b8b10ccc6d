#include "vm-worker/tiering/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

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

uint32_t PriorityOf(double saved_ns) {
  return static_cast<uint32_t>(std::clamp(saved_ns / 1000, 0.0, static_cast<double>(UINT32_MAX)));
}

// The share of a general plan's time that the segment's exact plans save: the mean over the shapes that were measured
// on both, with the default as one more of them.
double GainOverGeneral(const TierPolicy& policy, const SegmentProfile& profile, size_t& learnt_from) {
  double sum = policy.gain_over_general;
  learnt_from = 0;
  for (const ShapeCount& shape : profile.shapes) {
    const CallTime &general = shape.times.general, &exact = shape.times.exact;
    if (std::min(general.calls, exact.calls) < policy.measured_calls || general.ns == 0) continue;
    sum += std::clamp(1 - exact.PerCall() / general.PerCall(), -1.0, 1.0);
    ++learnt_from;
  }
  return sum / static_cast<double>(learnt_from + 1);
}

bool Holds(const std::vector<std::vector<int64_t>>& list, const std::vector<int64_t>& values) {
  return std::find(list.begin(), list.end(), values) != list.end();
}

// The exact plan that is worth most beyond its cost.
std::optional<PlanWish> NextExact(const TierPolicy& policy, const Segment& segment, const SegmentProfile& profile,
                                  const SegmentPlans& plans) {
  const ShapeCount* best = nullptr;
  ExactForecast forecast;
  for (const ShapeCount& shape : profile.shapes) {
    if (shape.times.calls() < policy.exact_calls) break;
    if (Holds(plans.exact, shape.symbol_values)) continue;
    const ExactForecast own = ForecastExact(policy, profile, shape);
    if (!own.Pays() || (best != nullptr && own.saved_ns <= forecast.saved_ns)) continue;
    best = &shape;
    forecast = own;
  }
  if (best == nullptr) return std::nullopt;
  return PlanWish{PlanTier::kExact, ExactSymbols(segment, best->symbol_values), best->symbol_values,
                  PriorityOf(forecast.saved_ns), forecast};
}

// What shapes have in common in one symbol.
struct Cluster {
  int64_t min = INT64_MAX, max = 0, divisor = 0;  // the divisor of all of them
  void Add(int64_t value) {
    min = std::min(min, value);
    max = std::max(max, value);
    divisor = std::gcd(divisor, value);
  }
};

// Divisors that vectors and tiles gain from.
constexpr int64_t kRangeDivisorMin = 8, kRangeDivisorMax = 64;

// Bounds that the next shape is likely to meet as well: powers of two around those that were seen, multiples of a power
// of two that divides all of them.
SymbolGuard Around(const Cluster& seen, const SymbolGuard& declared) {
  SymbolGuard guard = declared;
  const int64_t divisor = std::min(seen.divisor & -seen.divisor, kRangeDivisorMax);
  if (divisor >= kRangeDivisorMin && divisor % declared.divisor == 0) guard.divisor = divisor;
  const auto least = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(seen.min)));
  const auto most = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(seen.max)));
  guard.min = std::max(declared.min, least);
  guard.max = std::min(declared.max, most);
  return guard;
}

bool Admits(const std::vector<SymbolGuard>& symbols, const std::vector<int64_t>& values) {
  for (size_t i = 0; i < symbols.size(); ++i)
    if (values[i] >= 0 &&
        (values[i] < symbols[i].min || values[i] > symbols[i].max || values[i] % symbols[i].divisor != 0))
      return false;
  return true;
}

// The range plan for the shapes that a general plan answers, when they share something and none has most of the calls.
std::optional<PlanWish> NextRange(const TierPolicy& policy, const Segment& segment, const SegmentProfile& profile,
                                  const SegmentPlans& plans) {
  if (!policy.range || plans.range_pending || plans.ranges.size() >= policy.ranges_max) return std::nullopt;
  std::vector<Cluster> seen(segment.symbols.size());
  CallTime general;
  uint64_t most = 0;
  size_t shapes = 0;
  for (const ShapeCount& shape : profile.shapes) {
    const auto admits = [&](const auto& range) { return Admits(range, shape.symbol_values); };
    if (shape.times.general.calls == 0 || Holds(plans.exact_published, shape.symbol_values) ||
        std::ranges::any_of(plans.ranges, admits))
      continue;
    ++shapes;
    most = std::max(most, shape.times.general.calls);
    general.Add(shape.times.general);
    for (size_t i = 0; i < seen.size(); ++i)
      if (shape.symbol_values[i] > 0) seen[i].Add(shape.symbol_values[i]);
  }
  if (shapes < policy.range_shapes_min || general.calls < policy.exact_calls ||
      static_cast<double>(most) > policy.range_shape_share_max * static_cast<double>(general.calls))
    return std::nullopt;
  const auto span = static_cast<double>(std::max(profile.span_ns, policy.rate_span_min_ns));
  const double saved_ns =
      policy.range_gain * static_cast<double>(general.ns) / span * static_cast<double>(policy.horizon_ns);
  if (saved_ns <= static_cast<double>(profile.compile_ns > 0 ? profile.compile_ns : policy.compile_ns))
    return std::nullopt;
  std::vector<SymbolGuard> symbols = FreeSymbols(segment);
  bool narrower = false;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (seen[i].max == 0) continue;
    const SymbolGuard declared = std::exchange(symbols[i], Around(seen[i], symbols[i]));
    narrower |= symbols[i].divisor > declared.divisor || symbols[i].max < declared.max;
  }
  const auto hint = std::ranges::find_if(profile.shapes,
                                         [&](const ShapeCount& shape) { return Admits(symbols, shape.symbol_values); });
  if (!narrower || hint == profile.shapes.end()) return std::nullopt;
  return PlanWish{PlanTier::kRange, std::move(symbols), hint->symbol_values, PriorityOf(saved_ns), {}};
}

// The plan whose tiles are worth measuring most.
std::optional<PlanWish> NextTuned(const TierPolicy& policy, const Segment& segment, const SegmentProfile& profile,
                                  const SegmentPlans& plans) {
  if (!policy.tuned || plans.tuned_pending) return std::nullopt;
  CallTime general, most = {policy.exact_calls - 1, 0};
  const ShapeCount *general_shape = nullptr, *exact_shape = nullptr;
  for (const ShapeCount& shape : profile.shapes) {
    if (!Holds(plans.exact_published, shape.symbol_values)) {
      general.Add(shape.times.general);
      if (general_shape == nullptr && shape.times.general.calls > 0) general_shape = &shape;
    } else if (shape.times.exact.calls >= policy.exact_calls && shape.times.exact.ns > most.ns &&
               !Holds(plans.tuned_exact, shape.symbol_values)) {
      exact_shape = &shape;
      most = shape.times.exact;
    }
  }
  const bool for_all =
      general_shape != nullptr && !plans.tuned_general && general.calls >= policy.exact_calls && general.ns > most.ns;
  const CallTime& spent = for_all ? general : most;
  const auto span = static_cast<double>(std::max(profile.span_ns, policy.rate_span_min_ns));
  const double saved_ns =
      policy.tuned_gain * static_cast<double>(spent.ns) / span * static_cast<double>(policy.horizon_ns);
  if ((!for_all && exact_shape == nullptr) || saved_ns <= static_cast<double>(policy.tuning_ns)) return std::nullopt;
  const std::vector<int64_t>& values = (for_all ? general_shape : exact_shape)->symbol_values;
  return PlanWish{PlanTier::kTuned, for_all ? FreeSymbols(segment) : ExactSymbols(segment, values), values, 0, {},
                  for_all};
}

}  // namespace

bool IsBounded(const Guard& guard, const Segment& segment) {
  for (size_t i = 0; i < std::min(guard.symbols.size(), segment.symbols.size()); ++i) {
    if (segment.symbols[i].kind == SymbolSource::Kind::kValueDim) continue;
    const SymbolGuard& held = guard.symbols[i];
    const Symbol& declared = segment.body.symbols.symbol(static_cast<SymbolId>(i));
    if (held.min > declared.range.min || held.max < declared.range.max || held.divisor > declared.divisor) return true;
  }
  return false;
}

ExactForecast ForecastExact(const TierPolicy& policy, const SegmentProfile& profile, const ShapeCount& shape) {
  ExactForecast forecast;
  const CallTime& now = shape.admitted ? shape.times.general : shape.times.interpreted;
  forecast.call_ns = now.PerCall();
  forecast.gain =
      shape.admitted ? GainOverGeneral(policy, profile, forecast.learnt_from) : policy.gain_over_interpreter;
  const auto span = static_cast<double>(std::max(profile.span_ns, policy.rate_span_min_ns));
  forecast.calls_per_s = static_cast<double>(now.calls) / span * 1e9;
  forecast.saved_ns = forecast.gain * static_cast<double>(now.ns) / span * static_cast<double>(policy.horizon_ns);
  forecast.horizon_ns = static_cast<double>(policy.horizon_ns);
  forecast.compile_ns = static_cast<double>(profile.compile_ns > 0 ? profile.compile_ns : policy.compile_ns);
  return forecast;
}

std::string ForecastText(const ExactForecast& forecast) {
  return fmt::format(
      "{:.1f} calls/s of {:.3g} ms each; predicted to save {:.1f} % ({}) and {:.3g} s in {:.0f} s, for {:.3g} s "
      "of compilation",
      forecast.calls_per_s, forecast.call_ns / 1e6, 100 * forecast.gain,
      forecast.learnt_from == 0 ? "a default" : fmt::format("learnt from {} exact plans", forecast.learnt_from),
      forecast.saved_ns / 1e9, forecast.horizon_ns / 1e9, forecast.compile_ns / 1e9);
}

std::optional<PlanWish> NextPlan(const TierPolicy& policy, const Segment& segment, const SegmentProfile& profile,
                                 const SegmentPlans& plans) {
  if (plans.request_pending || profile.shapes.empty()) return std::nullopt;
  if (!plans.generic) {
    const bool warm = profile.interpreted_calls > policy.warm_up_runs;
    const bool hot = profile.interpreted_calls >= policy.hot_runs && profile.interpreted_ns >= policy.hot_ns;
    if (!warm || !hot) return std::nullopt;
    return PlanWish{segment.symbols.empty() ? PlanTier::kExact : PlanTier::kGeneric,
                    FreeSymbols(segment),
                    profile.shapes.front().symbol_values,
                    PriorityOf(static_cast<double>(profile.interpreted_ns)),
                    {}};
  }
  if (plans.published == 0) return std::nullopt;
  if (!segment.symbols.empty() && plans.published < policy.plans_max)
    for (const auto next : {NextExact, NextRange})
      if (auto wish = next(policy, segment, profile, plans)) return wish;
  return NextTuned(policy, segment, profile, plans);
}

}  // namespace kiln
