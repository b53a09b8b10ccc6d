// Fusion: which nodes become one plan step.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "common/base/result.h"
#include "compile-service/ir/graph.h"

namespace kiln::lower {

enum class GroupKind : uint8_t {
  kElementwise,  // a chain over one iteration space
  kRow,          // reductions over `axes` of one iteration space, with everything element-wise around them
  kProduct,      // MatMul with an epilogue
  kWideProduct,  // MatMul in f64
  kAttention,    // product, element-wise nodes, Softmax, product
  kConvolution,  // Conv with an epilogue
  kWindow,       // depthwise Conv or pooling with an epilogue
  kTaps,         // MaxPool with the places of what it finds
  kCopies,       // Concat, Pad
  kShape,        // ShapeVector
  kRecurrent,    // LSTM, GRU, RNN
  kScatter,      // ScatterElements, ScatterND; dims of the updates
  kScan,         // CumSum, CumProd along the only one of `axes`
  kReference,    // the node's reference kernel
};

struct Group {
  GroupKind kind{};
  std::vector<int32_t>
      nodes;              // of the graph, in dependency order; the anchor first except in element-wise and row groups
  std::vector<Dim> dims;  // iteration space, in logical order
  std::vector<int> axes;  // kRow: reduced dims; kScan
};

// Views and prepacked nodes belong to no group: views are address arithmetic, prepacked values are made at link time.
bool IsView(const ir::GraphNode& node);
// The value whose memory `id` views (itself when its node is no view).
ir::GraphValueId RootOf(const ir::Graph& graph, ir::GraphValueId id);

// Whether a node is a product of f64 matrices that a nest computes.
bool IsWideProduct(const ir::Graph& graph, const ir::GraphNode& node);

// Groups in an order in which each only reads what earlier ones made. Nodes of `reference` become reference steps.
Result<std::vector<Group>> Fuse(const ir::Graph& graph, const std::set<int32_t>& reference = {});

}  // namespace kiln::lower
