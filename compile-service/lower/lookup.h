// Lookups: Gather, GatherElements and GatherND with indices that are known when the plan runs, and Pad that repeats its
// input from the other end, as often as it takes.
//
// A lookup is a load whose position is read from memory (ScalarOp::LoadAt), so it fuses like any element-wise node: the
// rows of several embedding tables are added and normalised as they are read. What it reads positions from, and looks
// them up in, is memory that earlier steps have made. A step checks the indices before the kernel believes them
// (kernel_abi.h).
#pragma once

#include "compile-service/lower/group_body.h"

namespace kiln::lower {

// Whether kernels can compute the node: a lookup whose sizes allow it.
bool IsLookup(const ir::Graph& graph, const ir::GraphNode& node);
// Defines the node's output in `body`, a group over the output's dims, as `type`; adds the check of its indices.
Status AddLookup(PlanBuilder& builder, GroupBody& body, KernelArguments& arguments, const ir::GraphNode& node,
                 DType type);

}  // namespace kiln::lower
