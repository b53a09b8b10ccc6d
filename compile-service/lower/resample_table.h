// Where the positions of a resized axis lie in its input, as memory that a kernel of the plan fills.
#pragma once

#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

// The table for a node of which IsResample; its kernel is a step of the plan the first time that it is asked for.
Result<ResampleTable> TableOf(PlanBuilder& builder, const ir::GraphNode& resample);

}  // namespace kiln::lower
