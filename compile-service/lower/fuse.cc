#include "compile-service/lower/fuse.h"

#include <algorithm>
#include <map>
#include <set>

#include "compile-service/ir/attention_pattern.h"
#include "compile-service/lower/byte_product.h"
#include "compile-service/lower/convolution.h"
#include "compile-service/lower/kernel_dtypes.h"
#include "compile-service/lower/lookup.h"
#include "compile-service/lower/pool_places.h"
#include "compile-service/lower/positional.h"
#include "compile-service/lower/reduction.h"
#include "compile-service/lower/resample.h"
#include "compile-service/lower/scalar_nodes.h"
#include "compile-service/lower/scan.h"
#include "compile-service/lower/scatter.h"

namespace kiln::lower {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;

constexpr size_t kGroupNodesMax = 96;  // keeps kernels readable and registers few

bool IsPrepack(const Graph& graph, const GraphNode& node) {
  return std::ranges::all_of(node.outputs,
                             [&](GraphValueId output) { return output < 0 || graph.value(output).prepack; });
}

bool IsRowReduction(const Graph& graph, const GraphNode& node) {
  if (OpInfo(node.op).family != OpFamily::kReduction) return false;
  if (!ReductionOf(node.op, graph.value(node.inputs[0]).dtype)) return false;
  const std::optional<std::vector<int>> axes = ir::ReduceAxes(graph, node);
  return axes && !axes->empty();
}

class Fuser {
 public:
  Fuser(const Graph& graph, const std::set<int32_t>& reference)
      : graph_(graph), reference_(reference), group_of_node_(graph.nodes.size(), -1) {
    for (ir::AttentionPattern& pattern : ir::FindAttention(graph)) {
      if (std::ranges::any_of(pattern.nodes, [&](int32_t n) { return reference.contains(n); })) continue;
      for (int32_t n : pattern.nodes) attention_of_node_[n] = static_cast<int32_t>(attentions_.size());
      attentions_.push_back(std::move(pattern));
    }
  }

  Result<std::vector<Group>> Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const GraphNode& node = graph_.nodes[n];
      if (IsPrepack(graph_, node) || IsView(node)) continue;
      Place(static_cast<int32_t>(n), node);
    }
    return Ordered();
  }

 private:
  const GraphNode& node(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  Group& group(int32_t g) { return groups_[static_cast<size_t>(g)]; }

  void Place(int32_t n, const GraphNode& node) {
    const auto made = std::ranges::find_if(node.outputs, [](GraphValueId output) { return output >= 0; });
    const std::vector<Dim>& dims = graph_.value(*made).dims;
    if (reference_.contains(n)) return Start(GroupKind::kReference, n, dims);
    if (const auto attention = attention_of_node_.find(n); attention != attention_of_node_.end()) {
      const std::vector<int32_t>& nodes = attentions_[static_cast<size_t>(attention->second)].nodes;
      if (n != nodes.back()) return;  // all together, with the last
      Start(GroupKind::kAttention, nodes.front(), dims);
      for (size_t i = 1; i < nodes.size(); ++i) Join(static_cast<int32_t>(groups_.size()) - 1, nodes[i]);
      return;
    }
    if (IsLookup(graph_, node) || IsResample(node)) return Start(GroupKind::kElementwise, n, dims);
    if (IsPositional(graph_, node)) {
      if (node.op == TensorOp::kOneHot || !JoinScalar(n)) Start(GroupKind::kElementwise, n, dims);
      return;
    }
    if (IsArgReduction(graph_, node)) {
      const GraphValue& x = graph_.value(node.inputs[0]);
      Start(GroupKind::kRow, n, x.dims);
      groups_.back().axes = {ir::NormalAxis(node.attributes.Int("axis", 0), x.rank())};
      return;
    }
    if (IsScalarNode(graph_, node)) {
      if (!Broadcasts(node, dims)) return Start(GroupKind::kReference, n, dims);
      if (!JoinScalar(n)) Start(GroupKind::kElementwise, n, dims);
      return;
    }
    if (IsRowReduction(graph_, node)) return PlaceReduction(n);
    if (node.op == TensorOp::kMatMul && graph_.value(node.inputs[0]).dtype == DType::kF32) {
      return Start(GroupKind::kProduct, n, dims);
    }
    if (IsWideProduct(graph_, node)) return Start(GroupKind::kWideProduct, n, dims);
    if (node.op == TensorOp::kMatMulInteger || node.op == TensorOp::kQLinearMatMul) {
      return Start(ByteProductOf(graph_, node) ? GroupKind::kProduct : GroupKind::kReference, n, dims);
    }
    if (const std::optional<WindowShape> shape = WindowOf(graph_, node)) {
      if (node.op == TensorOp::kConvInteger || node.op == TensorOp::kQLinearConv) {
        const bool depthwise = IsDepthwise(graph_, node, *shape);
        const bool exact = !depthwise || int64_t{shape->kernel_h} * shape->kernel_w <= kByteWindowPositionsMax;
        if (!exact || !ByteProductOf(graph_, node)) return Start(GroupKind::kReference, n, dims);
        return Start(depthwise ? GroupKind::kWindow : GroupKind::kConvolution, n, dims);
      }
      const bool window = node.op != TensorOp::kConv || IsDepthwise(graph_, node, *shape);
      return Start(window ? GroupKind::kWindow : GroupKind::kConvolution, n, dims);
    }
    if (PoolsWithPlaces(graph_, node)) return Start(GroupKind::kTaps, n, dims);
    if (IsScatter(graph_, node)) return Start(GroupKind::kScatter, n, graph_.value(node.inputs[2]).dims);
    if (const std::optional<int> axis = ScanAxis(graph_, node)) {
      Start(GroupKind::kScan, n, dims);
      groups_.back().axes = {*axis};
      return;
    }
    if (node.op == TensorOp::kShapeVector) return Start(GroupKind::kShape, n, dims);
    if (IsCopies(node)) return Start(GroupKind::kCopies, n, dims);
    if (OpInfo(node.op).family == OpFamily::kRecurrent) return Start(GroupKind::kRecurrent, n, dims);
    Start(GroupKind::kReference, n, dims);
  }

  // Whether every input is known to be read along every dim of the output, or to be 1 there. A node that is not would
  // take the kernel of its group with it.
  bool Broadcasts(const GraphNode& node, const std::vector<Dim>& out) const {
    return std::ranges::all_of(node.inputs, [&](GraphValueId input) {
      if (input < 0) return true;
      const std::vector<Dim>& dims = graph_.value(input).dims;
      if (dims.size() > out.size()) return false;
      for (size_t i = 0; i < dims.size(); ++i)
        if (!graph_.IsOne(dims[i]) && !graph_.symbols.ProvenEqual(dims[i], out[out.size() - dims.size() + i]))
          return false;
      return true;
    });
  }

  bool IsCopies(const GraphNode& node) const {
    if (node.op == TensorOp::kBitCast) return true;
    if (node.op != TensorOp::kConcat && node.op != TensorOp::kPad) return false;
    if (!IsKernelDType(graph_.value(node.inputs[0]).dtype)) return false;
    if (node.op == TensorOp::kConcat) return true;
    if (node.attributes.Text("mode", "constant") != "constant") return false;
    if (node.inputs.size() > 3 && node.inputs[3] >= 0) return false;
    const GraphValue& pads = graph_.value(node.inputs[1]);
    return pads.known && std::ranges::all_of(*pads.known, [&](Dim pad) { return graph_.symbols.Bounds(pad).min >= 0; });
  }

  void Start(GroupKind kind, int32_t n, std::vector<Dim> dims) {
    group_of_node_[static_cast<size_t>(n)] = static_cast<int32_t>(groups_.size());
    groups_.push_back({kind, {n}, std::move(dims), {}});
  }

  void Join(int32_t g, int32_t n) {
    group(g).nodes.push_back(n);
    group_of_node_[static_cast<size_t>(n)] = g;
  }

  // The group that makes `id`'s memory, or -1 (inputs, weights).
  int32_t GroupOf(GraphValueId id) const {
    const GraphValue& root = graph_.value(RootOf(graph_, id));
    return root.origin == ir::Origin::kNode ? group_of_node_[static_cast<size_t>(root.index)] : -1;
  }
  // The group whose node makes `id` itself.
  int32_t DirectGroupOf(GraphValueId id) const {
    const GraphValue& value = graph_.value(id);
    return value.origin == ir::Origin::kNode ? group_of_node_[static_cast<size_t>(value.index)] : -1;
  }

  bool Reaches(int32_t from, int32_t to) const {
    std::vector<bool> seen(groups_.size(), false);
    std::vector<int32_t> stack{from};
    while (!stack.empty()) {
      const int32_t g = stack.back();
      stack.pop_back();
      if (g == to) return true;
      if (seen[static_cast<size_t>(g)]) continue;
      seen[static_cast<size_t>(g)] = true;
      for (int32_t n : groups_[static_cast<size_t>(g)].nodes) {
        for (GraphValueId input : node(n).inputs) {
          const int32_t before = input < 0 ? -1 : GroupOf(input);
          if (before >= 0 && before != g) stack.push_back(before);
        }
      }
    }
    return false;
  }

  // Joining must not make the group wait for something that waits for it.
  bool StaysAcyclic(int32_t g, const GraphNode& node) const {
    for (GraphValueId input : node.inputs) {
      if (input < 0) continue;
      const int32_t h = GroupOf(input);
      if (h >= 0 && (h == g ? DirectGroupOf(input) != g : Reaches(h, g))) return false;
    }
    return true;
  }

  std::vector<Dim> RowDims(const Group& g) const {
    std::vector<Dim> dims = g.dims;
    for (int axis : g.axes) dims[static_cast<size_t>(axis)] = Dim::Const(1);
    return dims;
  }

  // A convolution's rows are (image, row, column) as one dim: an operand may vary over all of the spatial dims or over
  // none.
  bool SpatialAllOrNone(const Group& g, GraphValueId operand) const {
    const std::vector<Dim>& dims = graph_.value(operand).dims;
    const size_t rank = g.dims.size();
    bool all = true, none = true;
    for (size_t i = 2; i < rank; ++i) {
      const Dim extent = i + dims.size() < rank ? Dim::Const(1) : dims[i + dims.size() - rank];
      all = all && graph_.symbols.ProvenEqual(extent, g.dims[i]);
      none = none && graph_.IsOne(extent);
    }
    return all || none;
  }

  // Whether inputs of the node are memory: it reads them at other places than its own, or more than once and bit for
  // bit, or a step reads them before its kernel does.
  bool ReadsMemory(const GraphNode& node) const {
    return IsLookup(graph_, node) || IsResample(node) || node.op == TensorOp::kOneHot || IsArgReduction(graph_, node) ||
           NeedsDivisorCheck(graph_, node);
  }

  // Whether an input that the node needs as memory is made by the group.
  bool ReadsFrom(const GraphNode& node, int32_t index) const {
    std::span<const GraphValueId> inputs = node.inputs;
    if (NeedsDivisorCheck(graph_, node)) inputs = inputs.subspan(1, 1);
    return std::ranges::any_of(inputs, [&](GraphValueId input) { return input >= 0 && GroupOf(input) == index; });
  }

  // Whether the node reads or makes f64, which takes a nest of its own behind sums in registers of f32.
  bool IsWide(const GraphNode& node) const {
    const auto wide = [&](GraphValueId id) { return id >= 0 && graph_.value(id).dtype == DType::kF64; };
    return std::ranges::any_of(node.inputs, wide) || std::ranges::any_of(node.outputs, wide);
  }

  bool CanHold(const Group& g, int32_t index, const GraphNode& node) const {
    const std::vector<Dim>& out = graph_.value(node.outputs[0]).dims;
    if (g.nodes.size() >= kGroupNodesMax) return false;
    // What two dims are both known to equal need not make them known to be equal.
    if (IsScalarNode(graph_, node) && !Broadcasts(node, g.dims)) return false;
    if (ReadsMemory(node) || IsPositional(graph_, node)) {
      const bool loops = g.kind == GroupKind::kElementwise || g.kind == GroupKind::kRow;
      return loops && graph_.SameDims(g.dims, out) && !(ReadsMemory(node) && ReadsFrom(node, index));
    }
    switch (g.kind) {
      case GroupKind::kElementwise:
        return graph_.SameDims(g.dims, out);
      case GroupKind::kProduct:
      case GroupKind::kWindow:
        return !IsWide(node) && graph_.SameDims(g.dims, out);
      case GroupKind::kConvolution:
        return !IsWide(node) && graph_.SameDims(g.dims, out) &&
               std::ranges::all_of(node.inputs, [&](GraphValueId input) {
                 return input < 0 || DirectGroupOf(input) == index || SpatialAllOrNone(g, input);
               });
      case GroupKind::kRow: {
        const std::vector<Dim> row = RowDims(g);
        if (!graph_.SameDims(g.dims, out) && !graph_.SameDims(row, out)) return false;
        return std::ranges::all_of(node.inputs,
                                   [&](GraphValueId input) {  // a reduction without keepdims aligns with nothing
                                     if (input < 0 || DirectGroupOf(input) != index) return true;
                                     return graph_.SameDims(g.dims, graph_.value(input).dims) ||
                                            graph_.SameDims(row, graph_.value(input).dims);
                                   });
      }
      case GroupKind::kWideProduct:
      case GroupKind::kAttention:
      case GroupKind::kTaps:
      case GroupKind::kCopies:
      case GroupKind::kShape:
      case GroupKind::kRecurrent:
      case GroupKind::kScatter:
      case GroupKind::kScan:
      case GroupKind::kReference:
        return false;
    }
    return false;
  }

  // Whether chain `h`, read by a node of `g`, can be computed there: it fits, and no third group lies between the two.
  bool CanAbsorb(int32_t g, int32_t h) {
    if (group(h).kind != GroupKind::kElementwise || group(g).nodes.size() + group(h).nodes.size() > kGroupNodesMax)
      return false;
    for (int32_t n : group(h).nodes) {
      if (!CanHold(group(g), g, node(n))) return false;
    }
    for (auto [from, to] : {std::pair(g, h), std::pair(h, g)}) {
      for (int32_t n : group(from).nodes) {
        if (ReadsMemory(node(n)) && ReadsFrom(node(n), to)) return false;
        for (GraphValueId input : node(n).inputs) {
          if (input < 0) continue;
          const int32_t direct = DirectGroupOf(input), root = GroupOf(input);
          if (direct == g || direct == h || root < 0) continue;
          if (root == g || root == h || Reaches(root, to)) return false;
        }
      }
    }
    return true;
  }

  void Absorb(int32_t g, int32_t h) {
    std::vector<int32_t>& nodes = group(g).nodes;
    for (int32_t n : group(h).nodes) Join(g, n);
    group(h).nodes.clear();
    const bool anchored = group(g).kind != GroupKind::kElementwise && group(g).kind != GroupKind::kRow;
    std::sort(nodes.begin() + (anchored ? 1 : 0), nodes.end());
  }

  bool JoinScalar(int32_t n) {
    std::set<int32_t, std::greater<>> candidates;
    for (GraphValueId input : node(n).inputs) {
      if (input >= 0 && DirectGroupOf(input) >= 0) candidates.insert(DirectGroupOf(input));
    }
    for (int32_t g : candidates) {
      if (!CanHold(group(g), g, node(n)) || !StaysAcyclic(g, node(n))) continue;
      Join(g, n);
      for (int32_t h : candidates) {
        if (h != g && CanAbsorb(g, h)) Absorb(g, h);
      }
      return true;
    }
    return false;
  }

  void PlaceReduction(int32_t n) {
    const GraphNode& reduction = node(n);
    const std::vector<Dim>& dims = graph_.value(reduction.inputs[0]).dims;
    const std::vector<int> axes = *ir::ReduceAxes(graph_, reduction);
    const int32_t g = DirectGroupOf(reduction.inputs[0]);
    if (g >= 0 && graph_.SameDims(group(g).dims, dims) && group(g).nodes.size() < kGroupNodesMax) {
      if (group(g).kind == GroupKind::kElementwise) {
        group(g).kind = GroupKind::kRow;
        group(g).axes = axes;
        return Join(g, n);
      }
      if (group(g).kind == GroupKind::kRow && group(g).axes == axes) return Join(g, n);
    }
    // Another reduction of the same tensor (mean and mean of squares) shares its loop.
    for (size_t h = 0; h < groups_.size(); ++h) {
      const Group& row = groups_[h];
      if (row.kind != GroupKind::kRow || row.axes != axes || row.nodes.size() >= kGroupNodesMax) continue;
      if (g >= 0 || node(row.nodes.front()).inputs[0] != reduction.inputs[0] || !graph_.SameDims(row.dims, dims))
        continue;
      return Join(static_cast<int32_t>(h), n);
    }
    Start(GroupKind::kRow, n, dims);
    groups_.back().axes = axes;
  }

  // Kahn's order over groups, the earliest first node first.
  Result<std::vector<Group>> Ordered() {
    std::vector<std::set<int32_t>> readers(groups_.size());
    std::vector<int> waiting(groups_.size(), 0);
    for (size_t g = 0; g < groups_.size(); ++g) {
      std::set<int32_t> before;
      for (int32_t n : groups_[g].nodes) {
        for (GraphValueId input : node(n).inputs) {
          const int32_t h = input < 0 ? -1 : GroupOf(input);
          if (h >= 0 && h != static_cast<int32_t>(g)) before.insert(h);
        }
      }
      for (int32_t h : before) readers[static_cast<size_t>(h)].insert(static_cast<int32_t>(g));
      waiting[g] = static_cast<int>(before.size());
    }
    std::set<std::pair<int32_t, int32_t>> ready;
    size_t live = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].nodes.empty()) continue;  // absorbed
      ++live;
      if (waiting[g] == 0) ready.insert({groups_[g].nodes.front(), static_cast<int32_t>(g)});
    }
    std::vector<Group> ordered;
    while (!ready.empty()) {
      const int32_t g = ready.begin()->second;
      ready.erase(ready.begin());
      for (int32_t reader : readers[static_cast<size_t>(g)]) {
        if (--waiting[static_cast<size_t>(reader)] == 0) ready.insert({group(reader).nodes.front(), reader});
      }
      ordered.push_back(std::move(group(g)));
    }
    if (ordered.size() != live) return Fail(ErrorCode::kInternal, "fusion made groups that wait for each other");
    return ordered;
  }

  const Graph& graph_;
  const std::set<int32_t>& reference_;
  std::vector<int32_t> group_of_node_;
  std::vector<ir::AttentionPattern> attentions_;
  std::map<int32_t, int32_t> attention_of_node_;
  std::vector<Group> groups_;
};

}  // namespace

bool IsView(const ir::GraphNode& node) {
  return node.op == TensorOp::kReshape || node.op == TensorOp::kTranspose || node.op == TensorOp::kExpand ||
         ((node.op == TensorOp::kSlice || node.op == TensorOp::kGather) && node.attributes.Has("starts"));
}

ir::GraphValueId RootOf(const ir::Graph& graph, ir::GraphValueId id) {
  while (graph.value(id).origin == ir::Origin::kNode && !graph.value(id).prepack) {
    const ir::GraphNode& node = graph.nodes[static_cast<size_t>(graph.value(id).index)];
    if (!IsView(node)) break;
    id = node.inputs[0];
  }
  return id;
}

Result<std::vector<Group>> Fuse(const ir::Graph& graph, const std::set<int32_t>& reference) {
  return Fuser(graph, reference).Run();
}

}  // namespace kiln::lower
