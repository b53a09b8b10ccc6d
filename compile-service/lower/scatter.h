// Scatters: ScatterElements and ScatterND.
//
// The data is copied, and a loop nest takes the updates to where their indices say. Updates that can meet in one
// element are worked on by one thread in the order of the indices, so that results are the interpreter's bit for bit.
#pragma once

#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

// Whether a kernel can compute the node.
bool IsScatter(const ir::Graph& graph, const ir::GraphNode& node);

}  // namespace kiln::lower
