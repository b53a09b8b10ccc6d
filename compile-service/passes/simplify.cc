// The small passes that only remove things.
#include <algorithm>
#include <cstring>
#include <map>

#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;
using ir::Origin;

namespace {

// The tensor of known constant contents, or nullopt when they or the dims depend on symbols.
std::optional<Tensor> KnownTensor(const GraphValue& value) {
  if (!value.known || (value.dtype != DType::kI64 && value.dtype != DType::kI32)) return std::nullopt;
  Dims dims;
  for (Dim dim : value.dims) {
    if (!dim.is_const()) return std::nullopt;
    dims.push_back(dim.value());
  }
  std::vector<int64_t> wide;
  for (Dim dim : *value.known) {
    if (!dim.is_const()) return std::nullopt;
    wide.push_back(dim.value());
  }
  if (static_cast<int64_t>(wide.size()) != NumElements(dims)) return std::nullopt;
  if (value.dtype == DType::kI64) return Tensor::Of<int64_t>(DType::kI64, dims, wide);
  const std::vector<int32_t> narrow(wide.begin(), wide.end());
  return Tensor::Of<int32_t>(DType::kI32, dims, narrow);
}

bool IsIdentity(const Graph& graph, const GraphNode& node) {
  const GraphValue& input = graph.value(node.inputs[0]);
  const GraphValue& output = graph.value(node.outputs[0]);
  if (!graph.SameDims(input.dims, output.dims) || input.dtype != output.dtype) return false;
  switch (OpInfo(node.op).family) {
    case OpFamily::kView:
      if (node.op == TensorOp::kTranspose) {
        const std::span<const int64_t> perm = node.attributes.Ints("perm");
        for (size_t i = 0; i < perm.size(); ++i) {
          if (perm[i] != static_cast<int64_t>(i)) return false;
        }
        return !perm.empty() || input.rank() < 2;
      }
      return node.op != TensorOp::kSlice || node.attributes.Ints("steps").empty() ||
             std::ranges::all_of(node.attributes.Ints("steps"), [](int64_t step) { return step == 1; });
    case OpFamily::kElementwise:
      if (node.op == TensorOp::kCast) return true;
      if (node.op == TensorOp::kMul || node.op == TensorOp::kDiv) return graph.ScalarOf(node.inputs[1]) == 1.0f;
      return false;
    case OpFamily::kMovement:
      return node.op == TensorOp::kConcat && node.inputs.size() == 1;
    case OpFamily::kReduction: {  // over dims of one element
      if (input.dtype != DType::kF32) return false;
      const bool plain = node.op == TensorOp::kReduceSum || node.op == TensorOp::kReduceMean ||
                         node.op == TensorOp::kReduceMax || node.op == TensorOp::kReduceMin ||
                         node.op == TensorOp::kReduceProd;
      const std::optional<std::vector<int>> axes = ir::ReduceAxes(graph, node);
      return plain && axes &&
             std::ranges::all_of(*axes, [&](int axis) { return graph.IsOne(input.dims[static_cast<size_t>(axis)]); });
    }
    case OpFamily::kContraction:
    case OpFamily::kConvolution:
    case OpFamily::kPooling:
    case OpFamily::kNormalization:
    case OpFamily::kRecurrent:
    case OpFamily::kIndexing:
    case OpFamily::kShape:
    case OpFamily::kSelection:
    case OpFamily::kQuantization:
    case OpFamily::kControl:
    case OpFamily::kConstant:
    case OpFamily::kOther:
      return false;
  }
  return false;
}

// What makes two immediates equal.
std::string ImmediateKey(const Tensor& tensor) {
  std::string key = std::to_string(static_cast<int>(tensor.dtype())) + tensor.dims().ToString();
  key.append(tensor.ref.as<char>(), static_cast<size_t>(tensor.ref.bytes()));
  return key;
}

}  // namespace

Result<bool> FoldKnown(Graph& graph) {
  Rewriter rewriter(graph);
  for (GraphNode& node : rewriter.TakeNodes()) {
    rewriter.Begin(node);
    bool kept = false;
    for (GraphValueId output : node.outputs) {
      if (output < 0) continue;
      if (std::optional<Tensor> tensor = KnownTensor(graph.value(output))) {
        const std::optional<KnownValues> known = graph.value(output).known;
        const GraphValueId immediate = graph.AddImmediate(std::move(*tensor));
        graph.value(immediate).known = known;
        rewriter.Replace(output, immediate);
      } else {
        kept = true;
      }
    }
    if (!kept) continue;
    // Symbolic contents need no inputs: what only fed a Shape is dead.
    const bool vector = node.outputs.size() == 1 && node.op != TensorOp::kShapeVector &&
                        graph.value(node.outputs[0]).known && graph.value(node.outputs[0]).dtype == DType::kI64;
    if (vector) {
      node.op = TensorOp::kShapeVector;
      node.inputs.clear();
      node.attributes = {};
      node.attributes.Set("dims", std::vector<Dim>(*graph.value(node.outputs[0]).known));
    }
    rewriter.Keep(std::move(node));
  }
  rewriter.Finish();
  return rewriter.changed();
}

Result<bool> RemoveIdentities(Graph& graph) {
  Rewriter rewriter(graph);
  for (GraphNode& node : rewriter.TakeNodes()) {
    rewriter.Begin(node);
    if (node.outputs.size() == 1 && !node.inputs.empty() && node.inputs[0] >= 0 && IsIdentity(graph, node)) {
      rewriter.Replace(node.outputs[0], node.inputs[0]);
      continue;
    }
    rewriter.Keep(std::move(node));
  }
  rewriter.Finish();
  return rewriter.changed();
}

Result<bool> ShareCommon(Graph& graph) {
  Rewriter rewriter(graph);
  std::map<std::string, GraphValueId> immediates;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const GraphValue& value = graph.values[v];
    if (value.origin != Origin::kImmediate) continue;
    const Tensor& tensor = graph.immediates[static_cast<size_t>(value.index)];
    if (tensor.ref.elements() > static_cast<int64_t>(limits::kImmediateElementsMax)) continue;
    const auto [found, inserted] = immediates.emplace(ImmediateKey(tensor), static_cast<GraphValueId>(v));
    if (!inserted) rewriter.Replace(static_cast<GraphValueId>(v), found->second);
  }
  std::map<std::pair<TensorOp, std::vector<GraphValueId>>, std::vector<GraphNode>> seen;
  for (GraphNode& node : rewriter.TakeNodes()) {
    rewriter.Begin(node);
    std::vector<GraphNode>& peers = seen[{node.op, node.inputs}];
    const auto equal = std::ranges::find_if(peers, [&](const GraphNode& peer) {
      if (!(peer.attributes == node.attributes) || peer.outputs.size() != node.outputs.size()) return false;
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        if ((peer.outputs[o] < 0) != (node.outputs[o] < 0)) return false;
        if (node.outputs[o] >= 0 &&
            !graph.SameDims(graph.value(peer.outputs[o]).dims, graph.value(node.outputs[o]).dims))
          return false;
      }
      return true;
    });
    if (equal != peers.end()) {
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        if (node.outputs[o] >= 0) rewriter.Replace(node.outputs[o], equal->outputs[o]);
      }
      continue;
    }
    peers.push_back(node);
    rewriter.Keep(std::move(node));
  }
  rewriter.Finish();
  return rewriter.changed();
}

Result<bool> RemoveDead(Graph& graph) {
  std::vector<bool> live(graph.values.size(), false);
  for (GraphValueId output : graph.outputs) live[static_cast<size_t>(output)] = true;
  std::vector<GraphNode> kept;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    bool needed = false;
    for (GraphValueId output : node->outputs) needed = needed || (output >= 0 && live[static_cast<size_t>(output)]);
    if (!needed) continue;
    for (GraphValueId input : node->inputs) {
      if (input >= 0) live[static_cast<size_t>(input)] = true;
    }
    kept.push_back(std::move(*node));
  }
  const bool changed = kept.size() != graph.nodes.size();
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);
  graph.Renumber();
  return changed;
}

}  // namespace kiln::passes
