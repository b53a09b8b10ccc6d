#include <algorithm>

#include "compile-service/passes/pad_axes.h"
#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

constexpr Dim kZero = Dim::Const(0), kOne = Dim::Const(1);

// Whether the dim has so many elements in every call that the plan's guard admits.
bool AtLeast(const SymbolTable& symbols, Dim dim, int64_t least) {
  const Constraint assumed{ConstraintKind::kLessEqual, Dim::Const(least), dim};
  return symbols.Bounds(dim).min >= least || std::ranges::count(symbols.constraints(), assumed) > 0;
}

class PadWriter {
 public:
  PadWriter(Rewriter& rewriter, PadSource source) : r_(rewriter), graph_(rewriter.graph()), source_(source) {}

  // The value with one dim padded: its pieces, one behind the other.
  GraphValueId Padded(GraphValueId x, const PadAxis& axis, GraphValueId into) {
    if (!AtLeast(graph_.symbols, axis.dim, axis.least)) return Wrapped(x, axis, into);
    std::vector<GraphValueId> pieces;
    if (axis.before > 0) pieces.push_back(Before(x, axis));
    pieces.push_back(x);
    if (axis.after > 0) pieces.push_back(After(x, axis));
    std::vector<Dim> dims = graph_.value(x).dims;
    dims[axis.axis] = graph_.symbols.Add(axis.dim, Dim::Const(axis.before + axis.after));
    Attributes attributes;
    attributes.Set("axis", static_cast<int64_t>(axis.axis));
    return r_.Emit(TensorOp::kConcat, std::move(pieces), std::move(dims), std::move(attributes), into);
  }

 private:
  // A Pad of this dim alone.
  GraphValueId Wrapped(GraphValueId x, const PadAxis& axis, GraphValueId into) {
    std::vector<Dim> dims = graph_.value(x).dims;
    dims[axis.axis] = graph_.symbols.Add(axis.dim, Dim::Const(axis.before + axis.after));
    Attributes attributes;
    attributes.Set("mode", std::string("wrap"));
    const GraphValueId pads = Integers({axis.before, axis.after});
    const GraphValueId axes = Integers({static_cast<int64_t>(axis.axis)});
    return r_.Emit(TensorOp::kPad, {x, pads, -1, axes}, std::move(dims), std::move(attributes), into);
  }
  GraphValueId Integers(const std::vector<int64_t>& values) {
    const auto count = static_cast<int64_t>(values.size());
    const GraphValueId id = graph_.AddImmediate(Tensor::Of<int64_t>(DType::kI64, Dims{count}, std::span(values)));
    KnownValues known;
    for (const int64_t value : values) known.push_back(Dim::Const(value));
    graph_.value(id).known = std::move(known);
    return id;
  }

  GraphValueId Before(GraphValueId x, const PadAxis& axis) {
    switch (source_) {
      case PadSource::kReflect:
        return Piece(x, axis, Dim::Const(axis.before), -1, axis.before);
      case PadSource::kEdge:
        return Repeated(x, axis, kZero, axis.before);
      case PadSource::kWrap:
        return Piece(x, axis, FromEnd(axis, axis.before), 1, axis.before);
    }
    __builtin_unreachable();
  }
  GraphValueId After(GraphValueId x, const PadAxis& axis) {
    switch (source_) {
      case PadSource::kReflect:
        return Piece(x, axis, FromEnd(axis, 2), -1, axis.after);
      case PadSource::kEdge:
        return Repeated(x, axis, FromEnd(axis, 1), axis.after);
      case PadSource::kWrap:
        return Piece(x, axis, kZero, 1, axis.after);
    }
    __builtin_unreachable();
  }
  Dim FromEnd(const PadAxis& axis, int64_t back) { return graph_.symbols.Add(axis.dim, Dim::Const(-back)); }

  GraphValueId Piece(GraphValueId x, const PadAxis& axis, Dim start, int64_t step, int64_t length) {
    std::vector<Dim> dims = graph_.value(x).dims;
    std::vector<Dim> starts(dims.size(), kZero);
    std::vector<int64_t> steps(dims.size(), 1);
    starts[axis.axis] = start;
    steps[axis.axis] = step;
    dims[axis.axis] = Dim::Const(length);
    Attributes attributes;
    attributes.Set("starts", std::move(starts));
    attributes.Set("steps", std::move(steps));
    return r_.Emit(TensorOp::kSlice, {x}, std::move(dims), std::move(attributes));
  }
  GraphValueId Repeated(GraphValueId x, const PadAxis& axis, Dim at, int64_t length) {
    const GraphValueId edge = Piece(x, axis, at, 1, 1);
    std::vector<Dim> dims = graph_.value(x).dims;
    dims[axis.axis] = Dim::Const(length);
    return length == 1 ? edge : r_.Emit(TensorOp::kExpand, {edge}, std::move(dims));
  }

  Rewriter& r_;
  Graph& graph_;
  const PadSource source_;
};

}  // namespace

std::vector<PadAxis> PadAxes(const Graph& graph, const GraphNode& node, PadSource* source) {
  if (node.op != TensorOp::kPad) return {};
  const std::string_view mode = node.attributes.Text("mode", "constant");
  const PadSource kind = mode == "reflect" ? PadSource::kReflect : mode == "edge" ? PadSource::kEdge : PadSource::kWrap;
  if (mode != "reflect" && mode != "edge" && mode != "wrap") return {};
  const auto known = [&](size_t i) -> const KnownValues* {
    if (i >= node.inputs.size() || node.inputs[i] < 0 || !graph.value(node.inputs[i]).known) return nullptr;
    return &*graph.value(node.inputs[i]).known;
  };
  const std::vector<Dim>& dims = graph.value(node.inputs[0]).dims;
  std::vector<size_t> axes(dims.size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = i;
  if (node.inputs.size() > 3 && node.inputs[3] >= 0) {
    if (known(3) == nullptr) return {};
    axes.clear();
    for (Dim axis : *known(3)) {
      if (!axis.is_const()) return {};
      axes.push_back(static_cast<size_t>(ir::NormalAxis(axis.value(), static_cast<int>(dims.size()))));
    }
  }
  const KnownValues* pads = known(1);
  if (pads == nullptr || pads->size() != 2 * axes.size()) return {};
  std::vector<PadAxis> list;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Dim before = (*pads)[i], after = (*pads)[i + axes.size()];
    if (!before.is_const() || !after.is_const() || before.value() < 0 || after.value() < 0 || axes[i] >= dims.size())
      return {};
    const int64_t most = std::max(before.value(), after.value());
    if (most == 0) continue;
    const int64_t least = kind == PadSource::kEdge ? 1 : kind == PadSource::kReflect ? most + 1 : most;
    list.push_back({axes[i], dims[axes[i]], before.value(), after.value(), least});
  }
  if (source != nullptr) *source = kind;
  return list;
}

std::optional<PadAxis> WrappedAxis(const Graph& graph, const GraphNode& node) {
  PadSource source{};
  const std::vector<PadAxis> axes = PadAxes(graph, node, &source);
  if (axes.size() != 1 || source != PadSource::kWrap || !AtLeast(graph.symbols, axes[0].dim, 1)) return std::nullopt;
  return axes[0];
}

Result<bool> RepeatedPads(Graph& graph) {
  Rewriter rewriter(graph);
  for (GraphNode& node : rewriter.TakeNodes()) {
    rewriter.Begin(node);
    PadSource source{};
    const std::vector<PadAxis> axes = PadAxes(graph, node, &source);
    const auto has = [&](const PadAxis& axis) {
      return AtLeast(graph.symbols, axis.dim, source == PadSource::kWrap ? 1 : axis.least);
    };
    const bool sound = !axes.empty() && !graph.value(node.outputs[0]).prepack && std::ranges::all_of(axes, has);
    if (!sound) {
      rewriter.Keep(std::move(node));
      continue;
    }
    PadWriter writer(rewriter, source);
    GraphValueId value = node.inputs[0];
    for (size_t i = 0; i < axes.size(); ++i)
      value = writer.Padded(value, axes[i], i + 1 == axes.size() ? node.outputs[0] : -1);
  }
  rewriter.Finish();
  return rewriter.changed();
}

}  // namespace kiln::passes
