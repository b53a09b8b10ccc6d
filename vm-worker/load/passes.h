// The load passes: each changes the program and says whether it did. A pass may leave values, regions, constants and
// symbols that nothing refers to; apart from those, the program verifies before and after each, and DropUnused removes
// them.
#pragma once

#include "common/base/result.h"
#include "common/bytecode/program.h"

namespace kiln {

// Nodes over constants become constants; integer arithmetic over dims becomes a ShapeVector. Descs that the shape rules
// now know better are sharpened.
Result<bool> FoldKnownNodes(Program& program);
// An If whose condition is a constant is replaced by the nodes of the branch that is taken.
Result<bool> InlineConstantIfs(Program& program);
// Identity nodes, except where one gives a region's output its own value.
Result<bool> RemoveIdentities(Program& program);
// A ScatterND without reduction whose constant indices name a block of the data becomes a Concat of slices and the
// updates: that is what assigning to a slice is exported as.
Result<bool> ConcatBlockScatters(Program& program);
// Of equal pure nodes in a region, and the regions around it, the first stays.
Result<bool> EliminateCommonNodes(Program& program);
// Nodes whose outputs nobody reads.
Result<bool> EliminateDeadNodes(Program& program);
// Values, regions, constants and symbols that nothing refers to; ids become dense again.
Result<bool> DropUnused(Program& program);

}  // namespace kiln
