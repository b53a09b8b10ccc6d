#include "cli/strict/strict_hook.h"

#include "common/messaging/rpc_client.h"
#include "vm-worker/interp/loaded_program.h"

namespace kiln::cli {
SegmentVerdict StrictHook::Enter(const SegmentEntry& entry) {
  Status status = RunCompiled(entry);
  if (status.has_value()) return SegmentVerdict::kExecuted;
  if (failure_.empty()) failure_ = "segment " + std::to_string(entry.segment) + ": " + ToString(status.error());
  return SegmentVerdict::kInterpret;   // so that an error of the model itself is reported as the interpreter's
}

Result<std::shared_ptr<const LinkedPlan>> StrictHook::PlanFor(const SegmentEntry& entry, const Segment& segment,
                                                              const std::vector<int64_t>& values) {
  for (const auto& plan : plans_[entry.segment]) {
    Guard guard = plan->plan().guard;
    for (InputGuard& input : guard.inputs) input = {false, AlignmentClass::kElement};
    if (!CheckGuard(guard, plan->plan().symbols, values, entry.inputs)) return plan;
  }
  CompileRequest request;
  ASSIGN_OR_RETURN(request.segment, EncodeSegment(segment));
  request.target = InfoOf(services_.target).name;
  request.tier = tier_ == StrictTier::kExact ? PlanTier::kExact : PlanTier::kGeneric;
  request.hints = values;
  for (size_t i = 0; i < segment.symbols.size(); ++i) {
    const Symbol& symbol = segment.body.symbols.symbol(static_cast<SymbolId>(i));
    const bool exact = tier_ == StrictTier::kExact && values[i] >= 0;
    request.symbols.push_back(exact ? SymbolGuard{values[i], values[i], 1} : SymbolGuard{symbol.range.min, symbol.range.max, symbol.divisor});
  }
  ASSIGN_OR_RETURN(CompileReply reply, RequestCompileSync(services_.compile, request, services_.deadline_ms));
  ASSIGN_OR_RETURN(FetchedPlan fetched, services_.source.Fetch(reply.plan_key, segment.id, services_.deadline_ms));
  ASSIGN_OR_RETURN(auto linked, LinkedPlan::Link(fetched.plan, fetched.key, segment, fetched.code, entry.weights, services_.packer));
  ++coverage_.segments;
  coverage_.generated_nodes += reply.generated_nodes;
  coverage_.reference_nodes += reply.reference_nodes;
  coverage_.kernels += reply.kernels;
  coverage_.kernels_compiled += reply.kernels_compiled;
  plans_[entry.segment].push_back(linked);
  return linked;
}

Status StrictHook::RunCompiled(const SegmentEntry& entry) {
  const Segment& segment = entry.program->segments()[static_cast<size_t>(entry.segment)];
  std::vector<int64_t> values(segment.symbols.size(), -1);
  RETURN_IF_ERROR(BindSymbols(segment, entry.inputs, entry.parameters, values));
  ASSIGN_OR_RETURN(std::shared_ptr<const LinkedPlan> plan, PlanFor(entry, segment, values));
  ASSIGN_OR_RETURN(auto instance, PlanInstance::Instantiate(plan, values));
  ASSIGN_OR_RETURN([[maybe_unused]] const SegmentCallResult call, RunOnEntry(*instance, entry, tables_));
  return {};
}

}  // namespace kiln::cli
