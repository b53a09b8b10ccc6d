#include "vm-worker/explain/explain_model.h"

#include <algorithm>
#include <set>

#include "common/artifact/target_text.h"
#include "common/bytecode/emit.h"
#include "vm-worker/explain/explain_plan.h"
#include "vm-worker/explain/remedies.h"

namespace kiln {
namespace {

constexpr int kTimedCalls = 16;  // measured per request with plans

std::vector<ExplainedMiss> ExplainMisses(const MissLedger& ledger) {
  std::vector<ExplainedMiss> rows;
  for (size_t i = 1; i < kMissReasons; ++i)
    if (ledger.calls[i] > 0)
      rows.push_back({std::string(MissReasonText(static_cast<MissReason>(i))), ledger.calls[i], ledger.ns[i]});
  return rows;
}

std::string PlaceText(const Program& program, const SegmentSite& site) {
  const Function& function = program.functions[static_cast<size_t>(site.function)];
  std::string text = site.function == 0 ? "main" : "function " + function.name;
  for (const Region& region : function.regions)
    for (const Node& node : region.nodes)
      if (std::ranges::find(node.regions, site.region) != node.regions.end())
        text += ", inside " + std::string(OpInfo(node.op).name) + " \"" + node.name + "\"";
  return text;
}

// "dtype[dims]" of a value, over the model's symbols.
std::string InputText(const LoadedProgram& program, const SegmentSite& site, const SegmentNames& names, size_t input) {
  const Function& function = program.program().functions[static_cast<size_t>(site.function)];
  return names.Input(input) + " : " +
         ToString(function.values[static_cast<size_t>(site.inputs[input])].desc, program.program().symbols);
}

std::string StateText(const SegmentStatus& status) {
  const bool called = status.totals.interpreted_calls + status.totals.plan_calls > 0;
  if (!status.published.empty())
    return std::to_string(status.published.size()) +
           (status.published.size() == 1 ? " plan published" : " plans published");
  if (!status.shadowing.empty()) return "interpreted; a plan is in its shadow runs";
  return called ? "interpreted" : "not called yet";
}

bool Wanted(const SegmentStatus& status, const SegmentNames& names, const ExplainRequest& request) {
  if (!request.segment.empty() && request.segment != std::to_string(status.segment) &&
      !status.id.Hex().starts_with(request.segment))
    return false;
  return request.node.empty() ||
         std::ranges::any_of(names.nodes(), [&](const ExplainedNode& node) { return node.name == request.node; });
}

ExplainedSegment ExplainSegment(const Model& model, const SegmentStatus& status, const SegmentNames& names,
                                const TierOptions& options, bool steps) {
  const LoadedProgram& program = model.program();
  const SegmentSite& site = program.sites()[status.segment];
  ExplainedSegment segment;
  segment.index = static_cast<uint32_t>(status.segment);
  segment.id = status.id.Hex();
  segment.place = PlaceText(program.program(), site);
  segment.end_reason = SegmentEndText(status.end_reason);
  segment.nodes = names.nodes();
  for (size_t i = 0; i < site.inputs.size(); ++i) segment.inputs.push_back(InputText(program, site, names, i));
  for (size_t i = 0; i < program.segments()[status.segment].symbols.size(); ++i)
    segment.symbols.push_back(names.SymbolSourceText(i));
  segment.state = StateText(status);
  segment.reason = MissReasonText(status.reason);
  segment.detail = status.detail;
  segment.interpreted_calls = status.totals.interpreted_calls;
  segment.interpreted_ns = status.totals.interpreted_ns;
  segment.plan_calls = status.totals.plan_calls;
  segment.kernel_ns = status.totals.kernel_ns;
  segment.reference_ns = status.totals.reference_ns;
  segment.guard_misses = status.totals.guard_misses;
  segment.input_copies = status.totals.input_copies;
  if (status.last_interpreted) segment.last_shape = names.Values(status.last_interpreted->symbol_values);
  segment.misses = ExplainMisses(status.misses);
  const std::optional<PlanTiming> timing = model.TimingOf(status.segment);
  for (const PlanStatus& plan : status.plans) {
    segment.plans.push_back(ExplainPlan(plan, names, timing, steps, options.shadow_runs));
    if (status.last_interpreted)
      segment.plans.back().mismatch = GuardMismatch(plan.plan->plan(), names, *status.last_interpreted);
  }
  segment.remedies = Remedies(status, options, segment);
  return segment;
}

// The op, and of a plug-in's operator its name.
std::string OpText(const Node& node) {
  std::string text(OpInfo(node.op).name);
  if (node.op == TensorOp::kCallFunc)
    text += " " + std::string(node.attributes.Text("domain", "")) + "." + std::string(node.attributes.Text("type", ""));
  return text;
}

// Nodes that no segment covers; constants apart, which cost nothing by themselves.
std::vector<ExplainedNode> NodesOutside(const LoadedProgram& program) {
  std::set<std::tuple<int, RegionId, int>> inside;
  for (const SegmentSite& site : program.sites())
    for (int node = site.first_node; node < site.end_node; ++node) inside.insert({site.function, site.region, node});
  std::vector<ExplainedNode> outside;
  const std::vector<Function>& functions = program.program().functions;
  for (size_t f = 0; f < functions.size(); ++f)
    for (size_t r = 0; r < functions[f].regions.size(); ++r) {
      const std::vector<Node>& nodes = functions[f].regions[r].nodes;
      for (size_t n = 0; n < nodes.size(); ++n)
        if (!IsRematerialised(nodes[n].op) &&
            !inside.contains({static_cast<int>(f), static_cast<RegionId>(r), static_cast<int>(n)}))
          outside.push_back({nodes[n].name, OpText(nodes[n])});
    }
  return outside;
}

// The first kernel of the segment's plans whose id begins so.
void AddCode(const SegmentStatus& status, const std::string& id, ExplainReply& reply) {
  for (const PlanStatus& plan : status.plans) {
    const std::vector<KernelId>& kernels = plan.plan->plan().kernels;
    for (size_t kernel = 0; kernel < kernels.size(); ++kernel) {
      if (!kernels[kernel].Hex().starts_with(id)) continue;
      const std::span<const uint8_t> code = plan.plan->code().blob(kernel);
      reply.kernel = kernels[kernel].Hex();
      reply.code.assign(code.begin(), code.end());
      return;
    }
  }
}

}  // namespace

Result<ExplainReply> ExplainModel(const Model& model, const TierController& tiers, const ExplainRequest& request) {
  ExplainReply reply;
  reply.model = model.name();
  reply.host = TargetsText(tiers.options().targets);
  MissLedger all;
  std::set<SegmentId> booked;  // the ledger is kept per SegmentId, whatever the number of sites
  for (const SegmentStatus& status : tiers.Segments(model)) {
    if (booked.insert(status.id).second)
      for (size_t i = 1; i < kMissReasons; ++i)
        all.Add(static_cast<MissReason>(i), status.misses.calls[i], status.misses.ns[i]);
    const SegmentNames names(model.program(), status.segment);
    if (!Wanted(status, names, request)) continue;
    reply.segments.push_back(ExplainSegment(model, status, names, tiers.options(), request.plans));
    if (!request.code.empty() && reply.code.empty()) AddCode(status, request.code, reply);
    if (request.plans) model.runtime(status.segment).timing_wanted.store(kTimedCalls);
  }
  if (!request.code.empty() && reply.code.empty())
    return Fail(ErrorCode::kNotFound,
                "no plan of the segments asked about has a kernel \"" + request.code + "\"; --plan lists them");
  reply.misses = ExplainMisses(all);
  reply.outside = NodesOutside(model.program());
  if (!reply.segments.empty()) return reply;
  const bool outside = std::ranges::any_of(
      reply.outside, [&](const ExplainedNode& node) { return !request.node.empty() && node.name == request.node; });
  if (outside || (request.segment.empty() && request.node.empty())) return reply;
  return Fail(ErrorCode::kNotFound, "model \"" + model.name() + "\" has no segment" +
                                        (request.segment.empty() ? "" : " \"" + request.segment + "\"") +
                                        (request.node.empty() ? "" : " with a node \"" + request.node + "\"") +
                                        "; it has " + std::to_string(model.program().segments().size()) +
                                        " segments, counted from 0");
}

}  // namespace kiln
