// First stage: shapes of every value as expressions over the segment's symbols, under the request's choices.
#pragma once

#include "common/artifact/plan.h"
#include "common/base/result.h"
#include "compile-service/ir/graph.h"
#include "compile-service/lower/lower_segment.h"

namespace kiln::lower {

struct BoundSegment {
  ir::Graph graph;
  Guard guard;
};

// Symbols that the request makes exact become constants; symbols of kind kValueDim become the expression that the shape
// rule gives. Facts a rule cannot prove are decided by the hints and recorded as constraints of the guard.
Result<BoundSegment> BindShapes(const LowerRequest& request);

}  // namespace kiln::lower
