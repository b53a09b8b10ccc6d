#include "compile-service/lower/tuning.h"

#include <algorithm>
#include <map>

#include "compile-service/ir/spec_form.h"
#include "compile-service/lower/tiles.h"

namespace kiln::lower {
namespace {

using ir::KernelSpec;
using ir::SpecInt;

int64_t ValueOf(const SpecInt& value, const std::vector<int64_t>& dims) {
  return value.is_argument ? dims[static_cast<size_t>(value.value)] : value.value;
}

Dim DimOf(const SpecInt& value, const KernelStep& step) {
  return value.is_argument ? step.dims[static_cast<size_t>(value.value)] : Dim::Const(value.value);
}

void AddTiles(std::vector<KernelSpec>& forms, const std::vector<ir::Tile>& tiles) {
  const KernelSpec own = forms.front();
  for (const ir::Tile& tile : tiles) {
    if (forms.size() >= kTunedFormsMax) return;
    KernelSpec form = own;
    if (auto* product = std::get_if<ir::ContractionSpec>(&form.kernel)) product->tile = tile;
    if (auto* attention = std::get_if<ir::AttentionSpec>(&form.kernel)) attention->tile = tile;
    if (form != own && ir::VerifySpec(form).has_value()) forms.push_back(std::move(form));
  }
}

// Columns of a window for as many registers as there are, and for fewer, with more weights in them.
void AddColumns(std::vector<KernelSpec>& forms) {
  const KernelSpec own = forms.front();
  for (const int32_t columns : {4, 6, 12, 2}) {
    KernelSpec form = own;
    std::get<ir::WindowSpec>(form.kernel).out_columns = columns;
    forms.push_back(std::move(form));
  }
}

std::vector<KernelSpec> FormsOf(const KernelSpec& spec, Target target, const std::vector<int64_t>& dims) {
  std::vector<KernelSpec> forms{spec};
  if (const auto* product = std::get_if<ir::ContractionSpec>(&spec.kernel)) {
    // Its tile says how it is made, not only how large.
    if (product->b_layout == ir::BLayout::kTransposed) return forms;
    if (product->winograd) {
      std::get<ir::ContractionSpec>(forms.emplace_back(spec).kernel).winograd = false;
    }
    AddTiles(forms, OtherTiles(target, ValueOf(product->m, dims), ValueOf(product->n, dims), ValueOf(product->k, dims),
                               product->tile, product->b_layout == ir::BLayout::kPanels));
  } else if (std::holds_alternative<ir::AttentionSpec>(spec.kernel)) {
    AddTiles(forms, {{8, 2}, {8, 1}, {4, 2}, {12, 1}, {4, 4}});
  } else if (std::holds_alternative<ir::WindowSpec>(spec.kernel)) {
    AddColumns(forms);
  }
  return forms;
}

// The parallel extent of a step over a spec, as RangeOf has it for numbers.
Dim RangeOfStep(SymbolTable& symbols, const KernelSpec& spec, const KernelStep& step, int lanes) {
  const auto tiles = [&](const SpecInt& extent, int64_t tile) {
    return symbols.CeilDiv(DimOf(extent, step), Dim::Const(tile));
  };
  const auto times_batch = [&](Dim range, const std::vector<SpecInt>& batch) {
    for (const SpecInt& extent : batch) range = symbols.Mul(range, DimOf(extent, step));
    return range;
  };
  if (const auto* product = std::get_if<ir::ContractionSpec>(&spec.kernel))
    return times_batch(
        symbols.Mul(tiles(product->n, int64_t{product->tile.nv} * lanes), tiles(product->m, product->tile.mr)),
        product->batch);
  if (const auto* attention = std::get_if<ir::AttentionSpec>(&spec.kernel))
    return times_batch(tiles(attention->m, int64_t{attention->tile.nv} * lanes), attention->batch);
  return step.range;
}

// The calls of one kernel at the hints, most work first.
struct KernelWork {
  std::map<std::vector<int64_t>, std::pair<int64_t, double>> calls;  // dims -> uses, work
  double work = 0;
};

std::vector<KernelWork> WorkOf(const LoweredSegment& lowered, std::span<const int64_t> hints) {
  std::vector<KernelWork> list(lowered.specs.size());
  for (const PlanStep& step : lowered.plan.steps) {
    const auto* kernel = std::get_if<KernelStep>(&step.step);
    if (kernel == nullptr) continue;
    std::vector<int64_t> dims;
    for (Dim dim : kernel->dims)
      if (const Result<int64_t> value = lowered.plan.symbols.Evaluate(dim, hints); value.has_value())
        dims.push_back(*value);
    const Result<int64_t> cost = lowered.plan.symbols.Evaluate(kernel->cost, hints);
    if (dims.size() != kernel->dims.size() || !cost.has_value()) continue;
    KernelWork& work = list[static_cast<size_t>(kernel->kernel)];
    auto& [uses, call_work] = work.calls[dims];
    ++uses;
    call_work += static_cast<double>(*cost);
    work.work += static_cast<double>(*cost);
  }
  return list;
}

// Points steps and measurements at the first of equal specs, and drops the others.
void MergeEqual(LoweredSegment& lowered) {
  std::vector<KernelSpec> kept;
  std::vector<int32_t> place;
  for (KernelSpec& spec : lowered.specs) {
    auto found = std::ranges::find(kept, spec);
    if (found == kept.end()) found = kept.insert(kept.end(), std::move(spec));
    place.push_back(static_cast<int32_t>(found - kept.begin()));
  }
  lowered.specs = std::move(kept);
  for (PlanStep& step : lowered.plan.steps)
    if (auto* kernel = std::get_if<KernelStep>(&step.step)) kernel->kernel = place[static_cast<size_t>(kernel->kernel)];
}

}  // namespace

std::vector<Tunable> FindTunable(const LoweredSegment& lowered, Target target, std::span<const int64_t> hints) {
  const std::vector<KernelWork> work = WorkOf(lowered, hints);
  double total = 0;
  std::vector<int32_t> hottest;
  for (size_t i = 0; i < work.size(); ++i) {
    total += work[i].work;
    hottest.push_back(static_cast<int32_t>(i));
  }
  std::ranges::stable_sort(hottest, std::greater<>(), [&](int32_t i) { return work[static_cast<size_t>(i)].work; });
  std::vector<Tunable> list;
  for (const int32_t i : hottest) {
    const KernelWork& kernel = work[static_cast<size_t>(i)];
    if (list.size() >= kTunedKernelsMax || kernel.calls.empty() || kernel.work < kTunedShareMin * total) break;
    std::vector<std::pair<double, TunedCall>> calls;
    for (const auto& [dims, use] : kernel.calls) calls.push_back({use.second, {dims, use.first}});
    std::ranges::stable_sort(calls, std::greater<>(), [](const auto& call) { return call.first; });
    Tunable tunable{i, FormsOf(lowered.specs[static_cast<size_t>(i)], target, calls.front().second.dims), {}};
    for (size_t c = 0; c < std::min(calls.size(), kTunedCallsMax); ++c) tunable.calls.push_back(calls[c].second);
    if (tunable.forms.size() > 1) list.push_back(std::move(tunable));
  }
  return list;
}

Status TakeForms(LoweredSegment& lowered, Target target, std::span<const Tunable> tunable,
                 std::span<const uint32_t> chosen) {
  if (chosen.size() != tunable.size())
    return Fail(ErrorCode::kInvalidArgument, std::to_string(chosen.size()) + " forms were chosen for " +
                                                 std::to_string(tunable.size()) + " kernels");
  for (size_t i = 0; i < tunable.size(); ++i) {
    if (chosen[i] >= tunable[i].forms.size())
      return Fail(ErrorCode::kInvalidArgument,
                  "kernel " + std::to_string(tunable[i].kernel) + " has no form " + std::to_string(chosen[i]));
    KernelSpec& spec = lowered.specs[static_cast<size_t>(tunable[i].kernel)];
    const std::string before = "; " + ir::SpecForm(spec), after = "; " + ir::SpecForm(tunable[i].forms[chosen[i]]);
    spec = tunable[i].forms[chosen[i]];
    for (PlanStep& step : lowered.plan.steps) {
      auto* kernel = std::get_if<KernelStep>(&step.step);
      if (kernel == nullptr || kernel->kernel != tunable[i].kernel) continue;
      kernel->range = RangeOfStep(lowered.plan.symbols, spec, *kernel, InfoOf(target).f32_lanes());
      if (step.label.ends_with(before)) step.label.replace(step.label.size() - before.size(), before.size(), after);
    }
  }
  MergeEqual(lowered);
  return {};
}

}  // namespace kiln::lower
