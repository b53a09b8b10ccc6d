// Reshapes move behind element-wise nodes, so that these join the kernel that makes the tensor.
#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;

// The value that `id` reshapes at run time, or -1.
GraphValueId SourceOf(const std::vector<GraphValueId>& reshape_of, GraphValueId id) {
  return static_cast<size_t>(id) < reshape_of.size() ? reshape_of[static_cast<size_t>(id)] : -1;
}

// Whether an operand means the same beside tensors of both shapes: one element, or a vector along an equal last dim.
bool FitsBoth(const Graph& graph, const GraphValue& operand, const std::vector<Dim>& from, const std::vector<Dim>& to) {
  if (operand.rank() == 0) return true;
  if (operand.rank() > 1 || from.empty() || to.empty()) return false;
  return graph.IsOne(operand.dims[0]) || (graph.symbols.ProvenEqual(operand.dims[0], from.back()) &&
                                          graph.symbols.ProvenEqual(operand.dims[0], to.back()));
}

// The reshaped source whose dims the node can be computed in, or -1.
GraphValueId CommonSource(const Graph& graph, const std::vector<GraphValueId>& reshape_of, const GraphNode& node) {
  if (OpInfo(node.op).family != OpFamily::kElementwise || node.outputs.size() != 1) return -1;
  const GraphValue& out = graph.value(node.outputs[0]);
  GraphValueId common = -1;
  for (GraphValueId input : node.inputs) {
    const GraphValueId source = input < 0 ? -1 : SourceOf(reshape_of, input);
    if (source < 0) continue;
    if (!graph.SameDims(graph.value(input).dims, out.dims)) return -1;
    if (common >= 0 && !graph.SameDims(graph.value(common).dims, graph.value(source).dims)) return -1;
    common = source;
  }
  if (common < 0) return -1;
  for (GraphValueId input : node.inputs) {
    if (input < 0 || SourceOf(reshape_of, input) >= 0) continue;
    if (!FitsBoth(graph, graph.value(input), graph.value(common).dims, out.dims)) return -1;
  }
  return common;
}

}  // namespace

Result<bool> SinkReshapes(Graph& graph) {
  Rewriter rewriter(graph);
  std::vector<GraphValueId> reshape_of(graph.values.size(), -1);
  bool changed = false;
  for (GraphNode& node : rewriter.TakeNodes()) {
    rewriter.Begin(node);
    const GraphValueId output = node.outputs.empty() ? -1 : node.outputs[0];
    if (node.op == TensorOp::kReshape && !graph.value(output).prepack &&
        graph.value(node.inputs[0]).origin == ir::Origin::kNode) {
      reshape_of[static_cast<size_t>(output)] = node.inputs[0];
    }
    const GraphValueId common = CommonSource(graph, reshape_of, node);
    if (common < 0) {
      rewriter.Keep(std::move(node));
      continue;
    }
    for (GraphValueId& input : node.inputs) {
      const GraphValueId source = input < 0 ? -1 : SourceOf(reshape_of, input);
      if (source >= 0) input = source;
    }
    const GraphValueId moved = graph.AddValue(graph.value(output).dtype, graph.value(common).dims);
    node.outputs[0] = moved;
    rewriter.Keep(std::move(node));
    rewriter.Reshape(moved, {}, output);
    reshape_of[static_cast<size_t>(output)] = moved;
    changed = true;
  }
  rewriter.Finish();
  return changed;
}

}  // namespace kiln::passes
