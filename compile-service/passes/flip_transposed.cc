// A transposed convolution without a stride is a convolution with the kernel flipped and the padding that
// completes a full one.
#include <algorithm>

#include "compile-service/passes/flipped_kernels.h"
#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

bool Flip(const GraphNode& node, Rewriter& r) {
  const Graph& graph = r.graph();
  if (node.op != TensorOp::kConvTranspose || graph.value(node.inputs[0]).dtype != DType::kF32) return false;
  const std::vector<Dim> w = graph.value(node.inputs[1]).dims;
  const size_t spatial = w.size() - 2;
  if (!graph.value(node.inputs[1]).prepack || w.size() < 3 || w.size() > 4 ||
      node.attributes.Text("auto_pad", "NOTSET") != "NOTSET" || node.attributes.Has("output_shape"))
    return false;
  const std::span<const int64_t> strides = node.attributes.Ints("strides"),
                                 extra = node.attributes.Ints("output_padding"), pads = node.attributes.Ints("pads"),
                                 dilations = node.attributes.Ints("dilations");
  if (!std::ranges::all_of(strides, [](int64_t v) { return v == 1; }) ||
      !std::ranges::all_of(extra, [](int64_t v) { return v == 0; }))
    return false;
  std::vector<int64_t> full(2 * spatial);
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t reach = (w[d + 2].value() - 1) * (dilations.empty() ? 1 : dilations[d]);
    for (size_t side : {d, d + spatial}) {
      full[side] = reach - (pads.empty() ? 0 : pads[side]);
      if (full[side] < 0) return false;
    }
  }
  const int64_t group = node.attributes.Int("group", 1);
  std::vector<GraphValueId> inputs = node.inputs;
  inputs[1] = FlippedKernels(r, inputs[1], group);
  Attributes attributes;
  attributes.Set("group", group);
  attributes.Set("pads", std::move(full));
  if (!dilations.empty()) attributes.Set("dilations", std::vector<int64_t>(dilations.begin(), dilations.end()));
  r.Emit(TensorOp::kConv, std::move(inputs), {}, std::move(attributes), node.outputs[0]);
  return true;
}

}  // namespace

Result<bool> FlipTransposed(Graph& graph) {
  Rewriter rewriter(graph);
  for (GraphNode& node : rewriter.TakeNodes()) {
    rewriter.Begin(node);
    if (!Flip(node, rewriter)) rewriter.Keep(std::move(node));
  }
  rewriter.Finish();
  return rewriter.changed();
}

}  // namespace kiln::passes
