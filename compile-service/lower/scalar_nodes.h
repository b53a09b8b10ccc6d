// Element-wise nodes that kernels compute: which they are, and as what scalar programs.
#pragma once

#include <span>

#include "compile-service/ir/graph.h"
#include "compile-service/lower/scalar_program.h"

namespace kiln::lower {

// Whether a kernel can compute the node element by element: op and dtypes both.
bool IsScalarNode(const ir::Graph& graph, const ir::GraphNode& node);
// Whether a step before the kernel must look for zeros in the divisor, which then is memory.
bool NeedsDivisorCheck(const ir::Graph& graph, const ir::GraphNode& node);
// Appends `node` and returns its scalar node; operands[i] is that of input i, converted already to the input's dtype,
// or -1 when absent. Precondition: IsScalarNode.
int32_t AddScalarNode(ScalarBuilder& scalars, const ir::Graph& graph, const ir::GraphNode& node,
                      std::span<const int32_t> operands);

}  // namespace kiln::lower
