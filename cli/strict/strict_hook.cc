#include "cli/strict/strict_hook.h"

#include "vm-worker/interp/loaded_program.h"

namespace kiln::cli {
namespace {

// A node of which a reference step computes any part counts as the reference step's; to check its operands is none.
void CountOps(const Plan& plan, const Segment& segment, std::map<TensorOp, OpCoverage>& ops) {
  std::map<int32_t, bool> generated;  // per node that steps compute
  for (const PlanStep& step : plan.steps) {
    const bool kernel = std::holds_alternative<KernelStep>(step.step);
    if (!kernel && OpInfo(std::get<ReferenceStep>(step.step).op).plan_check) continue;
    for (int32_t node : step.nodes) {
      const auto [at, fresh] = generated.emplace(node, kernel);
      if (!fresh) at->second = at->second && kernel;
    }
  }
  const std::vector<Node>& nodes = segment.body.entry().regions[0].nodes;
  for (const auto& [node, kernel] : generated) {
    OpCoverage& op = ops[nodes[static_cast<size_t>(node)].op];
    ++(kernel ? op.generated : op.reference);
  }
}

}  // namespace

void StrictCoverage::Add(const StrictCoverage& other) {
  segments += other.segments;
  generated_nodes += other.generated_nodes;
  reference_nodes += other.reference_nodes;
  kernels += other.kernels;
  kernels_compiled += other.kernels_compiled;
  for (const auto& [op, count] : other.ops) {
    ops[op].generated += count.generated;
    ops[op].reference += count.reference;
  }
  for (const auto& [reason, count] : other.ends) ends[reason] += count;
}

SegmentVerdict StrictHook::Enter(const SegmentEntry& entry) {
  Status status = RunCompiled(entry);
  if (status.has_value()) return SegmentVerdict::kExecuted;
  if (failure_.empty()) failure_ = "segment " + std::to_string(entry.segment) + ": " + ToString(status.error());
  return SegmentVerdict::kInterpret;  // so that an error of the model itself is reported as the interpreter's
}

Result<std::shared_ptr<const LinkedPlan>> StrictHook::PlanFor(const SegmentEntry& entry, const Segment& segment,
                                                              const std::vector<int64_t>& values) {
  for (const auto& plan : plans_[entry.segment])
    if (Admits(*plan, values, entry)) return plan;
  ASSIGN_OR_RETURN(const ObtainedPlan obtained, ObtainPlan(services_, tier_, entry, segment, values));
  ++coverage_.segments;
  coverage_.generated_nodes += obtained.reply.generated_nodes;
  coverage_.reference_nodes += obtained.reply.reference_nodes;
  coverage_.kernels += obtained.reply.kernels;
  coverage_.kernels_compiled += obtained.reply.kernels_compiled;
  CountOps(obtained.plan->plan(), segment, coverage_.ops);
  plans_[entry.segment].push_back(obtained.plan);
  return obtained.plan;
}

Status StrictHook::RunCompiled(const SegmentEntry& entry) {
  const Segment& segment = entry.program->segments()[static_cast<size_t>(entry.segment)];
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, SymbolValuesOf(segment, entry));
  ASSIGN_OR_RETURN(std::shared_ptr<const LinkedPlan> plan, PlanFor(entry, segment, values));
  ASSIGN_OR_RETURN(auto instance, PlanInstance::Instantiate(plan, values));
  StepTiming timing;
  if (observer_) timing.step_ns.assign(plan->plan().steps.size(), 0);
  int64_t reference_ns = 0;
  RETURN_IF_ERROR(RunOnEntry(*instance, entry, InputsToCopy(plan->plan().guard, entry.inputs), tables_, reference_ns,
                             observer_ ? &timing : nullptr));
  if (observer_) observer_(entry, *plan, values, timing);
  return {};
}

}  // namespace kiln::cli
