// Padding "SAME" whose part in front depends on sizes known at run time: how an odd rest is divided. The padding
// becomes pieces around the image, and the window one that stays inside; kernels have pads that are part of their code.
#include <algorithm>
#include <limits>

#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

// One spatial dim.
struct SameAxis {
  size_t axis = 0;
  Dim before, after;
};

class SamePadder {
 public:
  explicit SamePadder(Rewriter& rewriter) : r_(rewriter), graph_(rewriter.graph()) {}

  bool Run(const GraphNode& node) {
    const std::string_view mode = node.attributes.Text("auto_pad", "NOTSET");
    const bool covered = (node.op == TensorOp::kConv || node.op == TensorOp::kMaxPool) && node.outputs.size() == 1 &&
                         (mode == "SAME_UPPER" || mode == "SAME_LOWER");
    const ir::GraphValue& x = graph_.value(node.inputs[0]);
    if (!covered || x.dtype != DType::kF32 || x.rank() < 3) return false;
    const std::vector<SameAxis> axes = AxesOf(node, mode == "SAME_LOWER");
    if (axes.empty()) return false;
    GraphValueId padded = node.inputs[0];
    for (const SameAxis& axis : axes) padded = Padded(padded, axis, Fill(node));
    std::vector<GraphValueId> inputs = node.inputs;
    inputs[0] = padded;
    Attributes attributes = node.attributes;
    attributes.Set("auto_pad", std::string("VALID"));
    r_.Emit(node.op, std::move(inputs), {}, std::move(attributes), node.outputs[0]);
    return true;
  }

 private:
  // Those with padding; none when what lies in front is the same for all sizes.
  std::vector<SameAxis> AxesOf(const GraphNode& node, bool lower) {
    SymbolTable& symbols = graph_.symbols;
    const std::vector<Dim> in = graph_.value(node.inputs[0]).dims, out = graph_.value(node.outputs[0]).dims;
    const auto setting = [&](const char* name, size_t d) {
      const std::span<const int64_t> list = node.attributes.Ints(name);
      return d < list.size() ? list[d] : int64_t{1};
    };
    std::vector<SameAxis> axes;
    bool varies = false;
    for (size_t d = 0; d + 2 < in.size(); ++d) {
      int64_t kernel = setting("kernel_shape", d);
      if (node.op == TensorOp::kConv) {
        const Dim taps = graph_.value(node.inputs[1]).dims[d + 2];
        if (!taps.is_const()) return {};
        kernel = taps.value();
      }
      const int64_t stride = setting("strides", d), extent = (kernel - 1) * setting("dilations", d) + 1;
      const auto front = [&](int64_t total) { return lower ? total - total / 2 : total / 2; };
      const bool is_known = in[d + 2].is_const() || front(std::max<int64_t>(extent - stride, 0)) == front(extent - 1);
      varies = varies || !is_known;
      const Dim reach = symbols.Add(symbols.Mul(symbols.Sub(out[d + 2], kOne), Dim::Const(stride)), Dim::Const(extent));
      const Dim total = symbols.Max(symbols.Sub(reach, in[d + 2]), kZero);
      const Dim half = symbols.FloorDiv(total, Dim::Const(2)), rest = symbols.Sub(total, half);
      if (!symbols.ProvenEqual(total, kZero)) axes.push_back({d + 2, lower ? rest : half, lower ? half : rest});
    }
    return varies ? axes : std::vector<SameAxis>();
  }

  // A scalar: what a window makes nothing of.
  GraphValueId Fill(const GraphNode& node) {
    const float value = node.op == TensorOp::kMaxPool ? -std::numeric_limits<float>::infinity() : 0.0f;
    return graph_.AddImmediate(Tensor::Of<float>(DType::kF32, Dims{}, std::vector<float>{value}));
  }

  GraphValueId Padded(GraphValueId x, const SameAxis& axis, GraphValueId fill) {
    std::vector<Dim> dims = graph_.value(x).dims;
    const auto piece = [&](Dim length) {
      std::vector<Dim> piece_dims = dims;
      piece_dims[axis.axis] = length;
      return r_.Emit(TensorOp::kExpand, {fill}, std::move(piece_dims));
    };
    const auto is_zero = [&](Dim length) { return graph_.symbols.ProvenEqual(length, kZero); };
    std::vector<GraphValueId> pieces;
    if (!is_zero(axis.before)) pieces.push_back(piece(axis.before));
    pieces.push_back(x);
    if (!is_zero(axis.after)) pieces.push_back(piece(axis.after));
    dims[axis.axis] = graph_.symbols.Add(dims[axis.axis], graph_.symbols.Add(axis.before, axis.after));
    Attributes attributes;
    attributes.Set("axis", static_cast<int64_t>(axis.axis));
    return r_.Emit(TensorOp::kConcat, std::move(pieces), std::move(dims), std::move(attributes));
  }

  static constexpr Dim kZero = Dim::Const(0), kOne = Dim::Const(1);
  Rewriter& r_;
  Graph& graph_;
};

}  // namespace

Result<bool> SamePads(Graph& graph) {
  return RewriteEach<SamePadder>(graph);
}

}  // namespace kiln::passes
