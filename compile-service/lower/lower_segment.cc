#include "compile-service/lower/lower_segment.h"

#include <algorithm>
#include <optional>
#include <set>

#include "common/artifact/kernel_abi.h"
#include "common/base/limits.h"
#include "compile-service/lower/bind_shapes.h"
#include "compile-service/lower/emit.h"
#include "compile-service/lower/fuse.h"
#include "compile-service/lower/plan_builder.h"
#include "compile-service/passes/passes.h"

namespace kiln::lower {
namespace {

Status EmitGroup(PlanBuilder& builder, const Group& group) {
  switch (group.kind) {
    case GroupKind::kElementwise:
      return EmitElementwise(builder, group);
    case GroupKind::kRow:
      return EmitRow(builder, group);
    case GroupKind::kProduct:
      return EmitProduct(builder, group);
    case GroupKind::kWideProduct:
      return EmitWideProduct(builder, group);
    case GroupKind::kAttention:
      return EmitAttention(builder, group);
    case GroupKind::kConvolution:
      return EmitConvolution(builder, group);
    case GroupKind::kWindow:
      return EmitWindow(builder, group);
    case GroupKind::kTaps:
      return EmitPoolWithPlaces(builder, group);
    case GroupKind::kCopies:
      return EmitCopies(builder, group);
    case GroupKind::kShape:
      return EmitShape(builder, group);
    case GroupKind::kRecurrent:
      return EmitRecurrent(builder, group);
    case GroupKind::kScatter:
      return EmitScatter(builder, group);
    case GroupKind::kScan:
      return EmitScan(builder, group);
    case GroupKind::kReference:
      return EmitReference(builder, group);
  }
  return {};
}

// A group that its emitter refuses is computed by the reference kernels of its nodes.
Status EmitOrRefer(PlanBuilder& builder, const Group& group, Coverage& coverage) {
  Status status = EmitGroup(builder, group);
  if (status.has_value() || group.kind == GroupKind::kReference) return status;
  coverage.fallbacks.push_back(ToString(status.error()));
  std::vector<int32_t> nodes = group.nodes;
  std::ranges::sort(nodes);
  for (int32_t n : nodes) {
    RETURN_IF_ERROR(EmitReference(builder, {GroupKind::kReference, {n}, {}, {}}));
  }
  return {};
}

// Nodes to compute without kernels so that a plan names fewer: those of the groups around the `excess` kernels with the
// least work. Kernels that reference steps need for their operands stay.
std::set<int32_t> CheapestNodes(PlanBuilder& builder, const std::vector<Group>& groups, size_t excess) {
  struct Use {
    double cost = 0;
    std::set<int32_t> groups;
    bool fixed = false;
  };
  std::vector<Use> uses(builder.specs().size());
  for (size_t s = 0; s < builder.plan().steps.size(); ++s) {
    const auto* step = std::get_if<KernelStep>(&builder.plan().steps[s].step);
    if (step == nullptr) continue;
    Use& use = uses[static_cast<size_t>(step->kernel)];
    const int32_t group = builder.step_groups()[s];
    const bool movable = group >= 0 && groups[static_cast<size_t>(group)].kind != GroupKind::kReference &&
                         groups[static_cast<size_t>(group)].kind != GroupKind::kShape;
    use.fixed = use.fixed || !movable;
    if (movable) use.groups.insert(group);
    use.cost += static_cast<double>(builder.Hint(step->cost));
  }
  std::ranges::stable_sort(uses, {}, &Use::cost);
  std::set<int32_t> nodes;
  for (const Use& use : uses) {
    if (use.fixed || excess == 0) continue;
    --excess;
    for (int32_t group : use.groups) {
      const std::vector<int32_t>& members = groups[static_cast<size_t>(group)].nodes;
      nodes.insert(members.begin(), members.end());
    }
  }
  return nodes;
}

void CountNodes(const Plan& plan, size_t body_nodes, Coverage& coverage) {
  std::vector<char> how(body_nodes, 'f');
  for (const PlanStep& step : plan.steps) {
    const bool kernel = std::holds_alternative<KernelStep>(step.step);
    const auto* reference = std::get_if<ReferenceStep>(&step.step);
    if (reference != nullptr && OpInfo(reference->op).plan_check) continue;  // the nodes' kernel computes them
    if (!kernel) coverage.reference_ops.push_back(step.label);
    for (int32_t node : step.nodes) {
      if (how[static_cast<size_t>(node)] != 'r') how[static_cast<size_t>(node)] = kernel ? 'k' : 'r';
    }
  }
  coverage.kernel_nodes = static_cast<int>(std::ranges::count(how, 'k'));
  coverage.reference_nodes = static_cast<int>(std::ranges::count(how, 'r'));
  coverage.free_nodes = static_cast<int>(std::ranges::count(how, 'f'));
}

// One try: nodes of `reference` become reference steps. When there are too many kernels, adds to it and gives nothing.
Result<std::optional<LoweredSegment>> EmitPlan(const LowerRequest& request, ir::Graph graph,
                                               std::set<int32_t>& reference) {
  ASSIGN_OR_RETURN(const std::vector<Group> groups, Fuse(graph, reference));
  Coverage coverage;
  PlanBuilder builder(graph, groups, request.target, request.mode, request.hints);
  for (size_t g = 0; g < groups.size(); ++g) {
    builder.BeginGroup(static_cast<int32_t>(g));
    RETURN_IF_ERROR(EmitOrRefer(builder, groups[g], coverage));
  }
  RETURN_IF_ERROR(builder.Finish());
  const size_t kernels = builder.specs().size();
  if (kernels > limits::kPlanKernelsMax) {
    const std::set<int32_t> more = CheapestNodes(builder, groups, kernels - limits::kPlanKernelsMax);
    if (more.empty()) {
      return Fail(ErrorCode::kLimitExceeded, "the segment needs " + std::to_string(kernels) +
                                                 " kernels; a plan has at most " +
                                                 std::to_string(limits::kPlanKernelsMax));
    }
    reference.insert(more.begin(), more.end());
    return std::nullopt;
  }
  if (!reference.empty()) {
    coverage.fallbacks.push_back(std::to_string(reference.size()) +
                                 " nodes gave up their kernels: a plan has at most " +
                                 std::to_string(limits::kPlanKernelsMax));
  }
  return LoweredSegment{std::move(builder.plan()), std::move(builder.specs()), std::move(coverage)};
}

}  // namespace

Result<LoweredSegment> LowerSegment(const LowerRequest& request) {
  ASSIGN_OR_RETURN(BoundSegment bound, BindShapes(request));
  RETURN_IF_ERROR(passes::RunPasses(bound.graph, request.mode));
  std::set<int32_t> reference;
  std::optional<LoweredSegment> lowered;
  while (!lowered) {  // every try moves nodes to `reference`
    ASSIGN_OR_RETURN(lowered, EmitPlan(request, bound.graph, reference));
  }
  lowered->plan.segment = request.segment.id;
  lowered->plan.target = InfoOf(request.target).name;
  lowered->plan.abi = KILN_KERNEL_ABI;
  lowered->plan.numeric_mode = request.mode;
  lowered->plan.weights = request.weights;
  lowered->plan.guard = std::move(bound.guard);
  CountNodes(lowered->plan, request.segment.body.entry().regions.front().nodes.size(), lowered->coverage);
  return std::move(*lowered);
}

}  // namespace kiln::lower
