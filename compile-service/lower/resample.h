// Resize along one axis, as the passes leave it: loads at positions of the axis, which together with their weights are
// made once per call by a kernel over the axis alone, and shared by equal axes.
#pragma once

#include "compile-service/lower/group_body.h"

namespace kiln::lower {

bool IsResample(const ir::GraphNode& node);
// Whether elements are only moved: any dtype, and bits stay as they are.
bool OnlyMoves(const ir::GraphNode& resample);

// Defines the node's output in `body`, a group over the output's dims; elements are computed with as `type`.
Status AddResample(PlanBuilder& builder, GroupBody& body, KernelArguments& arguments, const ir::GraphNode& node,
                   DType type);

}  // namespace kiln::lower
