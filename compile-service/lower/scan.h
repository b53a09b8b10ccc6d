// Scans: CumSum and CumProd along an axis that is known when the plan is made.
#pragma once

#include <optional>

#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

// The axis along which a kernel computes the node; nullopt: none does.
std::optional<int> ScanAxis(const ir::Graph& graph, const ir::GraphNode& node);

}  // namespace kiln::lower
