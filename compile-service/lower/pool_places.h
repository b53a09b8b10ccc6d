// MaxPool whose second output says where in the input each maximum lies: a nest over the positions of the window.
#pragma once

#include "compile-service/ir/graph.h"

namespace kiln::lower {

bool PoolsWithPlaces(const ir::Graph& graph, const ir::GraphNode& node);

}  // namespace kiln::lower
