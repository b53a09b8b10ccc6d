// The attention pattern: product -> element-wise nodes (scale, mask) -> Softmax over the last dim -> product, where
// nothing else reads what lies between.
#pragma once

#include <cstdint>
#include <vector>

#include "compile-service/ir/graph.h"

namespace kiln::ir {

struct AttentionPattern {
  // Indices into graph.nodes, in dependency order: the product that makes scores, what is done to them, the Softmax,
  // the product with the values.
  std::vector<int32_t> nodes;
};

// Every pattern whose rows are short enough for one kernel (kAttentionElementsMax) and whose operands broadcast to the
// scores; patterns do not overlap. Single queries are left alone: their row of scores is short, and products of one row
// are faster than a kernel that works on many queries side by side.
std::vector<AttentionPattern> FindAttention(const Graph& graph);

}  // namespace kiln::ir
