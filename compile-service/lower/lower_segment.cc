#include "compile-service/lower/lower_segment.h"

#include <algorithm>

#include "common/artifact/kernel_abi.h"
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
    case GroupKind::kConvolution:
      return EmitConvolution(builder, group);
    case GroupKind::kWindow:
      return EmitWindow(builder, group);
    case GroupKind::kCopies:
      return EmitCopies(builder, group);
    case GroupKind::kShape:
      return EmitShape(builder, group);
    case GroupKind::kReference:
      return EmitReference(builder, group);
  }
  return {};
}

Coverage CoverageOf(const Plan& plan, size_t body_nodes) {
  std::vector<char> how(body_nodes, 'f');
  Coverage coverage;
  for (const PlanStep& step : plan.steps) {
    const bool kernel = std::holds_alternative<KernelStep>(step.step);
    if (!kernel) coverage.reference_ops.push_back(step.label);
    for (int32_t node : step.nodes) {
      if (how[static_cast<size_t>(node)] != 'r') how[static_cast<size_t>(node)] = kernel ? 'k' : 'r';
    }
  }
  coverage.kernel_nodes = static_cast<int>(std::ranges::count(how, 'k'));
  coverage.reference_nodes = static_cast<int>(std::ranges::count(how, 'r'));
  coverage.free_nodes = static_cast<int>(std::ranges::count(how, 'f'));
  return coverage;
}

}  // namespace

Result<LoweredSegment> LowerSegment(const LowerRequest& request) {
  ASSIGN_OR_RETURN(BoundSegment bound, BindShapes(request));
  RETURN_IF_ERROR(passes::RunPasses(bound.graph, request.mode));
  ASSIGN_OR_RETURN(const std::vector<Group> groups, Fuse(bound.graph));

  PlanBuilder builder(bound.graph, groups, request.target, request.mode, request.hints);
  for (const Group& group : groups) RETURN_IF_ERROR(EmitGroup(builder, group));
  RETURN_IF_ERROR(builder.Finish());

  LoweredSegment lowered{std::move(builder.plan()), std::move(builder.specs()), {}};
  lowered.plan.segment = request.segment.id;
  lowered.plan.target = InfoOf(request.target).name;
  lowered.plan.abi = KILN_KERNEL_ABI;
  lowered.plan.numeric_mode = request.mode;
  lowered.plan.guard = std::move(bound.guard);
  lowered.coverage = CoverageOf(lowered.plan, request.segment.body.entry().regions.front().nodes.size());
  return lowered;
}

}  // namespace kiln::lower
