#include "bench/models/profile.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/strict/strict_hook.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::bench {
namespace {

using Json = nlohmann::json;

Json DimsOf(const Plan& plan, std::span<const Dim> dims, std::span<const int64_t> values) {
  Json list = Json::array();
  for (Dim dim : dims) {
    const auto value = plan.symbols.Evaluate(dim, values);
    list.push_back(value.has_value() ? *value : -1);
  }
  return list;
}

Json Describe(const SegmentEntry& entry, const Plan& plan, size_t index, std::span<const int64_t> values) {
  const PlanStep& step = plan.steps[index];
  Json line = {{"segment", entry.segment}, {"step", index}, {"label", step.label}};
  if (const auto* kernel = std::get_if<KernelStep>(&step.step)) {
    line["kind"] = "kernel";
    line["dims"] = DimsOf(plan, kernel->dims, values);
    line["work"] = DimsOf(plan, {&kernel->cost, 1}, values)[0];
  } else {
    const auto& node = std::get<ReferenceStep>(step.step);
    line["kind"] = "reference";
    if (!node.outputs.empty() && node.outputs[0] >= 0)
      line["dims"] = DimsOf(plan, plan.values[static_cast<size_t>(node.outputs[0])].dims, values);
  }
  return line;
}

}  // namespace

Result<Json> ProfileSteps(std::shared_ptr<const LoadedProgram> program, const Request& request,
                          cli::PlanServices services, cli::StrictTier tier, int repeats) {
  // A segment may run several times in a request (a loop's body): its times of one request are summed.
  std::map<std::pair<int, size_t>, std::pair<int64_t, int64_t>> times;  // sum of this request, least of all
  std::map<std::pair<int, size_t>, Json> steps;
  cli::StrictHook hook(services, tier);
  hook.ObserveSteps([&](const SegmentEntry& entry, const LinkedPlan& plan, const std::vector<int64_t>& values,
                        const StepTiming& timing) {
    for (size_t i = 0; i < timing.step_ns.size(); ++i) {
      const auto key = std::pair(entry.segment, i);
      if (!steps.contains(key)) steps[key] = Describe(entry, plan.plan(), i, values);
      times.try_emplace(key, 0, INT64_MAX).first->second.first += timing.step_ns[i];
    }
  });
  VmContext context;
  RunOptions options;
  options.hook = &hook;
  for (int i = 0; i < repeats; ++i) {
    for (auto& [key, time] : times) time.first = 0;
    auto outputs = context.RunBorrowed(*program, request.inputs, options);
    if (!outputs.has_value()) return std::unexpected(outputs.error());
    for (auto& [key, time] : times) time.second = std::min(time.second, time.first);
  }
  std::vector<Json> lines;
  for (auto& [key, line] : steps) {
    line["us"] = static_cast<double>(times[key].second) / 1000;
    lines.push_back(std::move(line));
  }
  std::ranges::sort(lines, [](const Json& a, const Json& b) { return a["us"] > b["us"]; });
  return Json{{"failure", hook.failure()}, {"steps", std::move(lines)}};
}

}  // namespace kiln::bench
