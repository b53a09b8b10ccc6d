#include "compile-service/jobs/trial_dims.h"

#include <algorithm>

namespace kiln {
namespace {

// Whether symbol ranges and constraints admit the values; memory facts do not matter here.
bool Admits(const Plan& plan, std::span<const int64_t> values) {
  Guard guard = plan.guard;
  guard.inputs.clear();
  return !CheckGuard(guard, plan.symbols, values, {}).has_value();
}

std::vector<std::vector<int64_t>> TrialValues(const Plan& plan, std::span<const int64_t> hints) {
  std::vector<std::vector<int64_t>> trials;
  const std::vector<int64_t> base(hints.begin(), hints.end());
  const auto add = [&](std::vector<int64_t> values) {
    if (Admits(plan, values) && std::find(trials.begin(), trials.end(), values) == trials.end())
      trials.push_back(std::move(values));
  };
  add(base);
  for (const int step : {1, -1, 0}) {  // 0: the smallest value
    std::vector<int64_t> all = base;
    for (size_t i = 0; i < base.size(); ++i) {
      const SymbolGuard& guard = plan.guard.symbols[i];
      if (base[i] < 0 || guard.min == guard.max) continue;
      const int64_t moved = step == 0 ? std::max<int64_t>(guard.min, guard.divisor) : base[i] + step * guard.divisor;
      if (moved < guard.min || moved > guard.max) continue;
      all[i] = moved;
      std::vector<int64_t> one = base;
      one[i] = moved;
      add(std::move(one));
    }
    add(std::move(all));
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
      if (list.size() >= kTrialsPerKernelMax) continue;
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
