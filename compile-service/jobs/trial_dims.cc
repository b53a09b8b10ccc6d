#include "compile-service/jobs/trial_dims.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>

#include "common/base/checked_math.h"
#include "common/base/limits.h"

namespace kiln {
namespace {

// Whether symbol ranges and constraints admit the values; memory facts do not matter here.
bool Admits(const Plan& plan, std::span<const int64_t> values) {
  Guard guard = plan.guard;
  guard.inputs.clear();
  return !CheckGuard(guard, plan.symbols, values, {}).has_value();
}

// What a symbol is set to, relative to its observed value.
enum class Move { kOneMore, kOneLess, kSmallest, kElsewhere };

// The symbol's value after a move; nothing where the guard fixes it, or forbids the move.
std::optional<int64_t> Moved(const SymbolGuard& guard, int64_t value, Move move, uint64_t random) {
  if (value < 0 || guard.min == guard.max) return std::nullopt;
  const int64_t smallest = std::max<int64_t>(guard.min, guard.divisor);
  int64_t moved = value;
  switch (move) {
    case Move::kOneMore:
      moved = CheckedAdd(value, guard.divisor).value_or(value);
      break;
    case Move::kOneLess:
      moved = value - guard.divisor;
      break;
    case Move::kSmallest:
      moved = smallest;
      break;
    case Move::kElsewhere: {
      const int64_t steps = std::max<int64_t>(1, CheckedMul(2, value).value_or(value) / guard.divisor);
      moved = guard.divisor * (1 + static_cast<int64_t>(random % static_cast<uint64_t>(steps)));
      break;
    }
  }
  if (moved < guard.min || moved > guard.max) return std::nullopt;
  return moved;
}

// The observed values, then all symbols moved together, then one at a time.
std::vector<std::vector<int64_t>> TrialValues(const Plan& plan, std::span<const int64_t> hints) {
  std::vector<std::vector<int64_t>> trials;
  const std::vector<int64_t> base(hints.begin(), hints.end());
  const auto add = [&](std::vector<int64_t> values) {
    if (Admits(plan, values) && std::find(trials.begin(), trials.end(), values) == trials.end())
      trials.push_back(std::move(values));
  };
  add(base);
  std::minstd_rand random(static_cast<uint32_t>(std::accumulate(base.begin(), base.end(), uint64_t{1})));
  const Move moves[] = {Move::kOneMore, Move::kOneLess, Move::kSmallest, Move::kElsewhere, Move::kElsewhere};
  for (const Move move : moves) {
    std::vector<int64_t> all = base;
    for (size_t i = 0; i < base.size(); ++i)
      all[i] = Moved(plan.guard.symbols[i], base[i], move, random()).value_or(base[i]);
    add(std::move(all));
  }
  for (const Move move : {Move::kOneMore, Move::kOneLess, Move::kSmallest})
    for (size_t i = 0; i < base.size(); ++i)
      if (const auto moved = Moved(plan.guard.symbols[i], base[i], move, 0)) {
        std::vector<int64_t> one = base;
        one[i] = *moved;
        add(std::move(one));
      }
  return trials;
}

}  // namespace

std::vector<std::vector<std::vector<int64_t>>> TrialDims(const Plan& plan, size_t kernels,
                                                         std::span<const int64_t> hints) {
  std::vector<std::vector<std::vector<int64_t>>> trials(kernels);
  for (const std::vector<int64_t>& values : TrialValues(plan, hints)) {
    for (const PlanStep& step : plan.steps) {
      const auto* kernel = std::get_if<KernelStep>(&step.step);
      if (kernel == nullptr) continue;
      auto& list = trials[static_cast<size_t>(kernel->kernel)];
      if (list.size() >= limits::kTrialsPerKernelMax) continue;
      std::vector<int64_t> dims;
      for (Dim dim : kernel->dims) {
        const Result<int64_t> value = plan.symbols.Evaluate(dim, values);
        if (!value.has_value()) break;
        dims.push_back(*value);
      }
      if (dims.size() == kernel->dims.size() && std::find(list.begin(), list.end(), dims) == list.end())
        list.push_back(std::move(dims));
    }
  }
  return trials;
}

}  // namespace kiln
