// Ops that move elements, in terms of views and copies. Part of Decompose.
#pragma once

#include "compile-service/passes/rewriter.h"

namespace kiln::passes {

// Whether it replaced the node, which the rewriter has begun.
bool DecomposeMovement(Rewriter& rewriter, const ir::GraphNode& node);

}  // namespace kiln::passes
