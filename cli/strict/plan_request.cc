#include "cli/strict/plan_request.h"

#include "common/messaging/rpc_client.h"

namespace kiln::cli {

Result<std::vector<int64_t>> SymbolValuesOf(const Segment& segment, const SegmentEntry& entry) {
  std::vector<int64_t> values(segment.symbols.size(), -1);
  RETURN_IF_ERROR(BindSymbols(segment, entry.inputs, entry.parameters, values));
  return values;
}

bool Admits(const LinkedPlan& plan, const std::vector<int64_t>& values, const SegmentEntry& entry) {
  Guard guard = plan.plan().guard;
  for (InputGuard& input : guard.inputs) input = {false, AlignmentClass::kElement};
  return !CheckGuard(guard, plan.plan().symbols, values, entry.inputs).has_value();
}

Result<ObtainedPlan> ObtainPlan(const PlanServices& services, StrictTier tier, const SegmentEntry& entry,
                                const Segment& segment, const std::vector<int64_t>& values) {
  CompileRequest request;
  ASSIGN_OR_RETURN(request.segment, EncodeSegment(segment));
  request.target = InfoOf(services.target).name;
  request.tier = tier == StrictTier::kExact ? PlanTier::kExact : PlanTier::kGeneric;
  request.hints = values;
  for (size_t i = 0; i < segment.symbols.size(); ++i) {
    const Symbol& symbol = segment.body.symbols.symbol(static_cast<SymbolId>(i));
    const bool exact = tier == StrictTier::kExact && values[i] >= 0;
    request.symbols.push_back(exact ? SymbolGuard{values[i], values[i], 1}
                                    : SymbolGuard{symbol.range.min, symbol.range.max, symbol.divisor});
  }
  ObtainedPlan obtained;
  ASSIGN_OR_RETURN(obtained.reply, RequestCompileSync(services.compile, request, services.deadline_ms));
  ASSIGN_OR_RETURN(FetchedPlan fetched,
                   services.source.Fetch(obtained.reply.plan_key, segment.id, services.deadline_ms));
  ASSIGN_OR_RETURN(obtained.plan,
                   LinkedPlan::Link(fetched.plan, fetched.key, segment, fetched.code, entry.weights, services.packer));
  return obtained;
}

}  // namespace kiln::cli
