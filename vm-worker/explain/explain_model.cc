#include "vm-worker/explain/explain_model.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "common/artifact/target_text.h"
#include "common/bytecode/emit.h"
#include "common/segment/shape_walk.h"
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

std::string PlaceText(const Program& program, int index, RegionId place) {
  const Function& function = program.functions[static_cast<size_t>(index)];
  std::string text = index == 0 ? "main" : "function " + function.name;
  for (const Region& region : function.regions)
    for (const Node& node : region.nodes)
      if (std::ranges::find(node.regions, place) != node.regions.end())
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

// A number that is the index of one of `segments` segments means that one; few other digits are too little for an id.
bool IsNamed(const SegmentStatus& status, const std::string& name, size_t segments) {
  constexpr size_t kIdDigitsMin = 4;
  if (name.empty()) return true;
  if (std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; })) {
    size_t index = segments;
    std::from_chars(name.data(), name.data() + name.size(), index);
    if (index < segments && name == std::to_string(index)) return index == status.segment;
    if (name.size() < kIdDigitsMin) return false;
  }
  return status.id.Hex().starts_with(name);
}

bool Wanted(const SegmentStatus& status, const SegmentNames& names, const ExplainRequest& request, size_t segments) {
  if (!IsNamed(status, request.segment, segments)) return false;
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
  segment.place = PlaceText(program.program(), site.function, site.region);
  segment.end_reason = SegmentEndText(status.end_reason);
  segment.nodes = names.nodes();
  for (size_t i = 0; i < site.inputs.size(); ++i) segment.inputs.push_back(InputText(program, site, names, i));
  for (size_t i = 0; i < program.segments()[status.segment].symbols.size(); ++i)
    segment.symbols.push_back(names.SymbolSourceText(i));
  segment.state = StateText(status);
  segment.reason = MissReasonText(status.reason);
  if (status.trouble != MissReason::kCold) segment.trouble = MissReasonText(status.trouble);
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

// Why a node that no segment holds is in none, and what would change that.
std::string_view OutsideText(const Function& function, const Node& node) {
  if (IsRematerialised(node.op)) return "it is constant: what reads it carries it along, at no cost of its own";
  switch (NeverInSegment(function, node).value_or(SegmentEnd::kDataDependentShape)) {
    case SegmentEnd::kControlFlow:
      return "it only chooses what runs: the segments within its regions are what is compiled";
    case SegmentEnd::kDataDependentShape:
      return "its output sizes depend on tensor contents, so they are known only once it has run; contents that the "
             "model states as constants change that";
    case SegmentEnd::kUnknownRank:
      return "the rank of one of its values is known only once that exists; a model that states its shape changes that";
    case SegmentEnd::kRandom:
      return "it draws random numbers, which no plan repeats; nothing changes that";
    case SegmentEnd::kUserKernel:
      return "a plug-in's code runs it, which no plan calls; an operator of Kiln's own changes that";
    case SegmentEnd::kRegionEnd:
    case SegmentEnd::kSizeLimit:
      return "";  // these end segments between nodes
  }
  return "";
}

// Nodes that no segment covers; constants only of the name `asked`, since they cost nothing by themselves.
std::vector<ExplainedNode> NodesOutside(const LoadedProgram& loaded, const std::string& asked) {
  std::set<NodePlace> inside;
  for (const SegmentSite& site : loaded.sites())
    for (int32_t node = site.first_node; node < site.end_node; ++node)
      inside.insert({site.function, site.region, node});
  std::vector<ExplainedNode> outside;
  const std::vector<Function>& functions = loaded.program().functions;
  for (size_t f = 0; f < functions.size(); ++f)
    for (size_t r = 0; r < functions[f].regions.size(); ++r) {
      const std::vector<Node>& nodes = functions[f].regions[r].nodes;
      const NodePlace region{static_cast<int32_t>(f), static_cast<RegionId>(r), 0};
      for (size_t n = 0; n < nodes.size(); ++n) {
        const Node& node = nodes[n];
        const bool costs = !IsRematerialised(node.op) || (!asked.empty() && node.name == asked);
        if (!costs || inside.contains({region.function, region.region, static_cast<int32_t>(n)})) continue;
        outside.push_back({node.name, OpText(node), std::string(OutsideText(functions[f], node)),
                           PlaceText(loaded.program(), region.function, region.region)});
      }
    }
  return outside;
}

// The first kernel of the segment's plans whose id begins so. Unsupported: a device runs it.
Status AddCode(const SegmentStatus& status, const std::string& id, ExplainReply& reply) {
  for (const PlanStatus& plan : status.plans) {
    const std::vector<KernelId>& kernels = plan.plan->plan().kernels;
    for (size_t kernel = 0; kernel < kernels.size(); ++kernel) {
      if (!kernels[kernel].Hex().starts_with(id)) continue;
      if (plan.plan->on_device())
        return Fail(ErrorCode::kUnsupported, "the image of a kernel for " + plan.plan->plan().target +
                                                 " is for the device's driver alone; there is no listing of it");
      const std::span<const uint8_t> code = plan.plan->code().blob(kernel);
      reply.kernel = kernels[kernel].Hex();
      reply.code.assign(code.begin(), code.end());
      return {};
    }
  }
  return {};
}

}  // namespace

Result<ExplainReply> ExplainModel(const Model& model, const TierController& tiers, const ExplainRequest& request) {
  ExplainReply reply;
  reply.model = model.name();
  reply.host = TargetsText(tiers.options().targets);
  if (const std::string device = tiers.DeviceText(); !device.empty()) reply.host += "; device " + device;
  MissLedger all;
  std::set<SegmentId> booked;  // the ledger is kept per SegmentId, whatever the number of sites
  for (const SegmentStatus& status : tiers.Segments(model)) {
    if (booked.insert(status.id).second)
      for (size_t i = 1; i < kMissReasons; ++i)
        all.Add(static_cast<MissReason>(i), status.misses.calls[i], status.misses.ns[i]);
    const SegmentNames names(model.program(), status.segment);
    if (!Wanted(status, names, request, model.program().sites().size())) continue;
    reply.segments.push_back(ExplainSegment(model, status, names, tiers.options(), request.plans));
    if (!request.code.empty() && reply.code.empty()) RETURN_IF_ERROR(AddCode(status, request.code, reply));
    if (request.plans) model.runtime(status.segment).timing_wanted.store(kTimedCalls);
  }
  if (!request.code.empty() && reply.code.empty())
    return Fail(ErrorCode::kNotFound,
                "no plan of the segments asked about has a kernel \"" + request.code + "\"; --plan lists them");
  reply.misses = ExplainMisses(all);
  reply.outside = NodesOutside(model.program(), request.node);
  if (!reply.segments.empty()) return reply;
  const bool outside = std::ranges::any_of(
      reply.outside, [&](const ExplainedNode& node) { return !request.node.empty() && node.name == request.node; });
  if (request.segment.empty() && (outside || request.node.empty())) return reply;
  if (request.segment.empty())
    return Fail(ErrorCode::kNotFound, "model \"" + model.name() + "\" has no node \"" + request.node +
                                          "\"; one that was folded into others when the model was loaded is gone");
  return Fail(ErrorCode::kNotFound, "model \"" + model.name() + "\" has no segment \"" + request.segment + "\"" +
                                        (request.node.empty() ? "" : " with a node \"" + request.node + "\"") +
                                        "; it has " + std::to_string(model.program().sites().size()) +
                                        " segments, counted from 0; an id is named by its first digits");
}

}  // namespace kiln
