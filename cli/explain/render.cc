#include "cli/explain/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace kiln::cli {
namespace {

constexpr size_t kNodesShown = 6;
constexpr double kSmallShare = 0.02;  // of the model's time: such a segment is one line

std::string Time(double ns) {
  if (ns >= 1e9) return fmt::format("{:.2f} s", ns / 1e9);
  if (ns >= 1e6) return fmt::format("{:.2f} ms", ns / 1e6);
  return fmt::format("{:.1f} us", ns / 1e3);
}

double Each(uint64_t ns, uint64_t calls) {
  return calls == 0 ? 0 : static_cast<double>(ns) / static_cast<double>(calls);
}

std::string Counted(uint64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

uint64_t TotalNs(const ExplainedSegment& segment) {
  return segment.interpreted_ns + segment.kernel_ns + segment.reference_ns;
}

std::string NodeText(const ExplainedNode& node) {
  return node.name.empty() ? node.op : node.op + " " + node.name;
}

// "Conv ×12, Relu ×9, …", most frequent first.
std::string OpsText(const std::vector<ExplainedNode>& nodes) {
  std::map<std::string, int> counts;
  for (const ExplainedNode& node : nodes)
    if (node.op != "Constant" && node.op != "ShapeVector") ++counts[node.op];
  std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (size_t i = 0; i < std::min(sorted.size(), kNodesShown); ++i)
    text +=
        (i == 0 ? "" : ", ") + sorted[i].first + (sorted[i].second > 1 ? fmt::format(" ×{}", sorted[i].second) : "");
  if (sorted.size() > kNodesShown) text += fmt::format(", {} more kinds", sorted.size() - kNodesShown);
  return text;
}

std::string EndsText(const std::vector<ExplainedNode>& nodes) {
  std::vector<std::string> named;
  for (const ExplainedNode& node : nodes)
    if (!node.name.empty()) named.push_back(NodeText(node));
  if (named.empty()) return "";
  return named.size() == 1 ? named[0] : named.front() + " … " + named.back();
}

void List(std::string& text, const char* title, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < lines.size(); ++i) text += fmt::format("    {:<12}{}\n", i == 0 ? title : "", lines[i]);
}

std::string CostText(const ExplainedSegment& segment) {
  std::string text;
  if (segment.plan_calls > 0)
    text += fmt::format("{} by plan, {} each ({} kernels, {} reference steps)", Counted(segment.plan_calls, "call"),
                        Time(Each(segment.kernel_ns + segment.reference_ns, segment.plan_calls)),
                        Time(Each(segment.kernel_ns, segment.plan_calls)),
                        Time(Each(segment.reference_ns, segment.plan_calls)));
  if (segment.interpreted_calls > 0)
    text += fmt::format("{}{} interpreted, {} each", text.empty() ? "" : "; ", segment.interpreted_calls,
                        Time(Each(segment.interpreted_ns, segment.interpreted_calls)));
  return text.empty() ? "never called" : text;
}

std::string StepNodes(const ExplainedSegment& segment, const ExplainedStep& step) {
  std::string text;
  size_t shown = 0, named = 0;
  for (uint32_t index : step.nodes) {
    const ExplainedNode& node = segment.nodes[index];
    if (node.name.empty()) continue;
    ++named;
    if (shown >= 3) continue;
    text += (shown++ == 0 ? "" : ", ") + node.name;
  }
  return named > shown ? text + fmt::format(", {} more", named - shown) : text;
}

void RenderSteps(std::string& text, const ExplainedSegment& segment, const ExplainedPlan& plan) {
  uint64_t total = 0;
  for (const ExplainedStep& step : plan.steps) total += step.ns;
  if (plan.timed_calls > 0) {
    text +=
        fmt::format("      measured at {} over {}: {} each, arena {} KiB\n",
                    plan.timed_shape.empty() ? "its one shape" : plan.timed_shape, Counted(plan.timed_calls, "call"),
                    Time(Each(total, plan.timed_calls)), plan.arena_bytes / 1024);
    text += "      step      time   share  what [kernel] arguments: nodes\n";
  } else {
    text += "      not measured: no call used this plan since it was asked for\n";
  }
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const ExplainedStep& step = plan.steps[i];
    const std::string time = plan.timed_calls == 0 ? "-" : Time(Each(step.ns, plan.timed_calls));
    const double share = total == 0 ? 0 : 100 * static_cast<double>(step.ns) / static_cast<double>(total);
    const std::string what =
        step.kernel.empty() ? "REFERENCE " + step.op : step.label + " [" + step.kernel.substr(0, 8) + "]";
    text += fmt::format("      {:>4} {:>9} {:>6.1f}%  {} ({}){}\n", i, time, share, what, step.dims,
                        step.nodes.empty() ? "" : ": " + StepNodes(segment, step));
    if (!step.operands.empty()) text += fmt::format("{:>28}{}\n", "", step.operands);
  }
}

// Of the plans that refuse the last interpreted call, the one with the fewest conditions against it.
const ExplainedPlan* NearestPlan(const ExplainedSegment& segment) {
  const ExplainedPlan* nearest = nullptr;
  for (const ExplainedPlan& plan : segment.plans)
    if (!plan.mismatch.empty() && (nearest == nullptr || plan.mismatch.size() < nearest->mismatch.size()))
      nearest = &plan;
  return segment.plans.size() > 1 ? nearest : nullptr;
}

void RenderPlan(std::string& text, const ExplainedSegment& segment, const ExplainedPlan& plan, bool steps) {
  text += fmt::format("    plan {}  {}{}, {}{}; {}; {} in {} generated steps", plan.key.substr(0, 12), plan.tier,
                      plan.weights.empty() ? "" : ", weights " + plan.weights, plan.state,
                      &plan == NearestPlan(segment) ? ", the nearest to the last interpreted call" : "", plan.target,
                      Counted(plan.kernels, "kernel"), plan.generated_steps);
  text += plan.reference_steps > 0 ? fmt::format(", {}\n", Counted(plan.reference_steps, "reference step")) : "\n";
  if (!plan.guard.empty()) {
    text += "      holds for  ";
    for (size_t i = 0; i < plan.guard.size(); ++i) text += (i == 0 ? "" : "\n                 ") + plan.guard[i];
    text += "\n";
  }
  for (const std::string& line : plan.mismatch) text += "      refused    " + line + "\n";
  for (const std::string& line : plan.tuning) text += "      timed      " + line + "\n";
  if (steps) {
    RenderSteps(text, segment, plan);
    return;
  }
  for (const ExplainedStep& step : plan.steps)
    if (step.kernel.empty()) text += fmt::format("      reference  {}: {}\n", step.op, StepNodes(segment, step));
}

void RenderSegment(std::string& text, const ExplainedSegment& segment, const RenderOptions& options) {
  text += fmt::format("\n  segment {} [{}] in {}: {} ({})\n", segment.index, segment.id.substr(0, 12), segment.place,
                      EndsText(segment.nodes), OpsText(segment.nodes));
  text += fmt::format("    ends where  {}\n", segment.end_reason);
  List(text, "inputs", segment.inputs);
  List(text, "sizes", segment.symbols);
  text += fmt::format("    now         {}\n", segment.state);
  const bool interpreted = segment.interpreted_calls > 0, is_reason = segment.trouble == segment.reason;
  if (interpreted && segment.plans.empty())
    text += fmt::format("    because     {}{}\n", segment.reason,
                        segment.detail.empty() || !is_reason ? "" : ": " + segment.detail);
  if (!segment.detail.empty() && !(interpreted && segment.plans.empty() && is_reason))
    text +=
        fmt::format("    last error  {}{}\n", segment.trouble.empty() ? "" : segment.trouble + ": ", segment.detail);
  text += fmt::format("    cost        {}\n", CostText(segment));
  if (interpreted && !segment.last_shape.empty())
    text += fmt::format("    last interpreted call at {}\n", segment.last_shape);
  for (const ExplainedPlan& plan : segment.plans) RenderPlan(text, segment, plan, options.plans);
  List(text, "to change", segment.remedies);
}

void RenderLedger(std::string& text, const ExplainReply& reply) {
  uint64_t reference_ns = 0, copies = 0;
  for (const ExplainedSegment& segment : reply.segments) {
    reference_ns += segment.reference_ns;
    copies += segment.input_copies;
  }
  text += "\n  fallbacks                     calls        time\n";
  for (const ExplainedMiss& miss : reply.misses)
    text += fmt::format("    interpreted: {:<14}{:>8}  {:>10}\n", miss.reason, miss.calls,
                        Time(static_cast<double>(miss.ns)));
  text += fmt::format("    reference steps in plans             {:>10}\n", Time(static_cast<double>(reference_ns)));
  text += fmt::format("    inputs copied together     {:>8}\n", copies);
}

// Of the nodes of that name those that no segment holds.
std::string NodeOutsideText(const ExplainReply& reply, const std::string& name) {
  std::string text;
  for (const ExplainedNode& node : reply.outside) {
    if (node.name != name) continue;
    text += fmt::format("\n  {} in {} is in no segment: always interpreted\n", NodeText(node),
                        node.place.empty() ? "the model" : node.place);
    text += fmt::format("    because     {}\n", node.reason.empty() ? "the worker does not say" : node.reason);
    text += "    cost        not measured by itself: a worker takes the time of segments and steps of plans\n";
  }
  return text;
}

}  // namespace

std::string Render(const ExplainReply& reply, const RenderOptions& options) {
  const std::string of_node = options.node.empty() ? "" : NodeOutsideText(reply, options.node);
  if (!of_node.empty() && reply.segments.empty()) return reply.model + ":" + of_node;
  uint64_t total = 0, by_plan = 0;
  for (const ExplainedSegment& segment : reply.segments) {
    total += TotalNs(segment);
    by_plan += segment.plans.empty() ? 0 : 1;
  }
  std::string text = fmt::format("{}: {}, {} of them with a plan; {} in segments so far\n", reply.model,
                                 Counted(reply.segments.size(), "segment"), by_plan, Time(static_cast<double>(total)));
  if (!reply.host.empty()) text += fmt::format("  plans are made for {}\n", reply.host);
  std::vector<const ExplainedSegment*> order;
  for (const ExplainedSegment& segment : reply.segments) order.push_back(&segment);
  std::ranges::stable_sort(order, [](const auto* a, const auto* b) { return TotalNs(*a) > TotalNs(*b); });
  size_t small = 0;
  for (const ExplainedSegment* segment : order) {
    const double share = total == 0 ? 1 : static_cast<double>(TotalNs(*segment)) / static_cast<double>(total);
    if (!options.all && reply.segments.size() > 3 && share < kSmallShare) {
      ++small;
      continue;
    }
    RenderSegment(text, *segment, options);
  }
  text += of_node;
  if (small > 0)
    text += fmt::format("\n  {} with less than {:.0f} % of the time each are left out (--all shows them)\n",
                        Counted(small, "segment"), 100 * kSmallShare);
  if (!reply.outside.empty())
    text += fmt::format("\n  in no segment, always interpreted: {} ({})\n", Counted(reply.outside.size(), "node"),
                        OpsText(reply.outside));
  RenderLedger(text, reply);
  return text;
}

std::string HottestKernel(const ExplainReply& reply) {
  std::map<std::string, uint64_t> times;
  for (const ExplainedSegment& segment : reply.segments)
    for (const ExplainedPlan& plan : segment.plans)
      for (const ExplainedStep& step : plan.steps)
        if (!step.kernel.empty()) times[step.kernel] += step.ns;
  const auto most = std::ranges::max_element(times, {}, [](const auto& entry) { return entry.second; });
  return most == times.end() || most->second == 0 ? "" : most->first;
}

std::string RenderKernel(const ExplainReply& reply, const std::string& listing) {
  std::string text = fmt::format("\nkernel {}\n", reply.kernel);
  for (const ExplainedSegment& segment : reply.segments)
    for (const ExplainedPlan& plan : segment.plans)
      for (size_t i = 0; i < plan.steps.size(); ++i) {
        const ExplainedStep& step = plan.steps[i];
        if (step.kernel != reply.kernel) continue;
        text += fmt::format("  segment {}, plan {}, step {}: {} ({}): {}\n    {}\n", segment.index,
                            plan.key.substr(0, 12), i, step.label, step.dims, StepNodes(segment, step), step.operands);
        if (plan.timed_calls > 0) text += fmt::format("    {} each\n", Time(Each(step.ns, plan.timed_calls)));
      }
  return text + "  " + listing;
}

}  // namespace kiln::cli
