#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "common/base/limits.h"
#include "common/bytecode/emit.h"
#include "common/bytecode/emit_liveness.h"
#include "common/bytecode/symbol_definitions.h"
#include "common/segment/canonical.h"
#include "common/segment/segment.h"
#include "common/segment/shape_walk.h"

namespace kiln {
namespace {

// How often each symbol is mentioned.
class Mentions {
 public:
  explicit Mentions(const SymbolTable& symbols) : symbols_(symbols), count_(symbols.symbol_count(), 0) {}
  void Add(Dim dim) {
    if (dim.is_const()) return;
    for (SymbolId id : symbols_.SymbolsOf(dim)) ++count_[static_cast<size_t>(id)];
  }
  void Add(const Function& function, const Node& node) {
    for (const Attribute& attribute : node.attributes.all())
      if (const auto* dims = std::get_if<std::vector<Dim>>(&attribute.value))
        for (Dim dim : *dims) Add(dim);
    for (ValueId output : node.outputs) Add(function, output);
    // Whoever reads a value needs what its dims are made of; a symbol alone is shown by the value itself.
    for (ValueId input : node.inputs)
      for (Dim dim : DimsOf(function, input))
        if (dim.kind() == Dim::Kind::kExpr) Add(dim);
  }
  void Add(const Function& function, ValueId value) {
    for (Dim dim : DimsOf(function, value)) Add(dim);
  }
  int64_t of(SymbolId id) const { return count_[static_cast<size_t>(id)]; }

 private:
  static std::span<const Dim> DimsOf(const Function& function, ValueId value) {
    if (value == kNoValue) return {};
    const TensorDesc& desc = function.values[static_cast<size_t>(value)].desc;
    return desc.has_rank() ? std::span<const Dim>(*desc.dims) : std::span<const Dim>();
  }

  const SymbolTable& symbols_;
  std::vector<int64_t> count_;
};

class Finder {
 public:
  Finder(const Program& program, int function, const SymbolDefinitions& definitions, SegmentedProgram* out)
      : program_(program),
        function_index_(function),
        function_(program.functions[static_cast<size_t>(function)]),
        definitions_(definitions),
        live_(FindLiveness(function_)),
        mentions_(program.symbols),
        walk_(program, definitions, function),
        out_(*out) {
    for (const Region& region : function_.regions) {
      for (ValueId input : region.inputs) mentions_.Add(function_, input);
      for (const Node& node : region.nodes) mentions_.Add(function_, node);
    }
  }

  void RegionSegments(RegionId id) {
    const std::vector<Node>& nodes = function_.regions[static_cast<size_t>(id)].nodes;
    const int count = static_cast<int>(nodes.size());
    int first = 0;
    while (first < count) {
      walk_.Restart();
      int computing = 0, end = first;
      std::optional<SegmentEnd> reason;
      while (end < count && computing < static_cast<int>(limits::kSegmentNodesMax)) {
        reason = walk_.Step(nodes[static_cast<size_t>(end)]);
        if (walk_.last_is_static()) out_.static_nodes.push_back({function_index_, id, end});
        NoteClaims(id, nodes[static_cast<size_t>(end)]);
        if (reason) break;
        computing += !IsRematerialised(nodes[static_cast<size_t>(end)].op);
        ++end;
      }
      if (!reason && end == count) reason = SegmentEnd::kRegionEnd;
      if (!reason) end = NarrowestCut(id, first, end);
      if (computing > 0) AddSite(id, first, end, reason.value_or(SegmentEnd::kSizeLimit));
      first = end;
      if (reason && end < count) {
        for (RegionId nested : nodes[static_cast<size_t>(end)].regions) RegionSegments(nested);
        ++first;
      }
    }
  }

 private:
  // What the walk said of the sizes that the program states for the node's outputs. A branch that is not taken may
  // contradict itself.
  void NoteClaims(RegionId region, const Node& node) {
    if (region == 0 && function_index_ == 0 && walk_.last_refuted() && !out_.refuted) {
      const std::string name = node.name.empty() ? "" : " \"" + node.name.substr(0, 200) + "\"";
      out_.refuted =
          FailIn("function \"" + function_.name.substr(0, 200) + "\", node " + std::string(OpInfo(node.op).name) + name,
                 *walk_.last_refuted())
              .error();
    }
    if (IsRematerialised(node.op)) return;
    for (ValueId output : node.outputs)
      if (output != kNoValue && HasVaryingDim(output) && !walk_.IsProven(output))
        out_.unproven.emplace_back(function_index_, output);
  }

  // Sizes that are stated as constants are checked wherever they are not proven.
  bool HasVaryingDim(ValueId value) const {
    const TensorDesc& desc = function_.values[static_cast<size_t>(value)].desc;
    return desc.has_rank() && !desc.is_static();
  }

  // The border in the second half of [first, end) that the fewest values cross.
  int NarrowestCut(RegionId region, int first, int end) const {
    const std::vector<Node>& nodes = function_.regions[static_cast<size_t>(region)].nodes;
    std::vector<int> change(static_cast<size_t>(end - first + 1), 0);
    for (int i = first; i < end; ++i) {
      if (IsRematerialised(nodes[static_cast<size_t>(i)].op)) continue;
      for (ValueId output : nodes[static_cast<size_t>(i)].outputs) {
        if (output == kNoValue) continue;
        const int last = std::min(live_.last_use[static_cast<size_t>(output)], end);
        if (last <= i) continue;
        ++change[static_cast<size_t>(i + 1 - first)];
        if (last < end) --change[static_cast<size_t>(last + 1 - first)];
      }
    }
    int best = end, best_live = std::numeric_limits<int>::max(), live = 0;
    for (int cut = first + 1; cut <= end; ++cut) {
      live += change[static_cast<size_t>(cut - first)];
      if (cut >= first + (end - first) / 2 && live <= best_live) {
        best = cut;
        best_live = live;
      }
    }
    return best;
  }

  void AddSite(RegionId region, int first, int end, SegmentEnd reason) {
    SegmentSite site{
        .function = function_index_, .region = region, .first_node = first, .end_node = end, .end_reason = reason};
    const std::vector<Node>& nodes = function_.regions[static_cast<size_t>(region)].nodes;
    const Mentions inside = MentionsInside(region, first, end);
    for (int i = first; i < end; ++i) {
      if (IsRematerialised(nodes[static_cast<size_t>(i)].op)) continue;
      for (ValueId output : nodes[static_cast<size_t>(i)].outputs)
        if (output != kNoValue && (live_.last_use[static_cast<size_t>(output)] >= end || ShapeEscapes(output, inside)))
          site.outputs.push_back(output);
    }
    BuildCanonical(program_, definitions_, &site);
    out_.sites.push_back(std::move(site));
  }

  // What the plan of a segment needs itself. A rematerialised node whose value is read behind the segment runs there.
  Mentions MentionsInside(RegionId region, int first, int end) const {
    Mentions inside(program_.symbols);
    for (int i = first; i < end; ++i) {
      const Node& node = function_.regions[static_cast<size_t>(region)].nodes[static_cast<size_t>(i)];
      const bool runs_behind = IsRematerialised(node.op) && live_.last_use[static_cast<size_t>(node.outputs[0])] >= end;
      if (!runs_behind) inside.Add(function_, node);
    }
    return inside;
  }

  // Whether a symbol that the value defines is needed after the segment: then the value must leave it.
  bool ShapeEscapes(ValueId value, const Mentions& inside) const {
    const auto& defines = definitions_.defines[static_cast<size_t>(function_index_)][static_cast<size_t>(value)];
    const TensorDesc& desc = function_.values[static_cast<size_t>(value)].desc;
    for (size_t i = 0; i < defines.size(); ++i)
      if (defines[i] && mentions_.of((*desc.dims)[i].symbol()) > inside.of((*desc.dims)[i].symbol())) return true;
    return false;
  }

  const Program& program_;
  const int function_index_;
  const Function& function_;
  const SymbolDefinitions& definitions_;
  const Liveness live_;
  Mentions mentions_;
  ShapeWalk walk_;
  SegmentedProgram& out_;
};

}  // namespace

SegmentedProgram SegmentProgram(const Program& program, const SymbolDefinitions& definitions) {
  SegmentedProgram out;
  for (size_t i = 0; i < program.functions.size(); ++i)
    Finder(program, static_cast<int>(i), definitions, &out).RegionSegments(0);
  std::ranges::sort(out.static_nodes);
  out.static_nodes.erase(std::ranges::unique(out.static_nodes).begin(), out.static_nodes.end());
  std::ranges::sort(out.unproven);
  out.unproven.erase(std::ranges::unique(out.unproven).begin(), out.unproven.end());
  return out;
}

ShapeFacts ShapeFactsOf(const SegmentedProgram& segmented) {
  return {
      .is_static =
          [&segmented](const NodePlace& place) { return std::ranges::binary_search(segmented.static_nodes, place); },
      .is_unproven =
          [&segmented](int function, ValueId value) {
            return std::ranges::binary_search(segmented.unproven, std::pair(function, value));
          }};
}

std::vector<SegmentSite> FindSegments(const Program& program) {
  return SegmentProgram(program, FindSymbolDefinitions(program)).sites;
}

}  // namespace kiln
