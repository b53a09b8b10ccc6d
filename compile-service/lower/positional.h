// Nodes that ask where an element lies: ranges, triangles, one-hot rows, and the index of the largest or smallest
// element.
#pragma once

#include "compile-service/lower/group_body.h"

namespace kiln::lower {

// Range, Trilu and OneHot that kernels compute element by element.
bool IsPositional(const ir::Graph& graph, const ir::GraphNode& node);
// Defines the node's output in `body`, a group over the output's dims.
Status AddPositional(PlanBuilder& builder, GroupBody& body, KernelArguments& arguments, const ir::GraphNode& node);

// ArgMax and ArgMin that kernels compute: a reduction over `axis` for the value, and one for the first (or last)
// position that has it.
bool IsArgReduction(const ir::Graph& graph, const ir::GraphNode& node);
// Appends the two reductions to the stages of a row group; `x` is the scalar of the node's input, which is memory, so
// that both see the same bits.
void AddArgReduction(GroupBody& body, const ir::Graph& graph, const ir::GraphNode& node, int32_t x,
                     std::vector<ir::Stage>& stages);

}  // namespace kiln::lower
