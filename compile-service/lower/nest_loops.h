// The loops of a nest before they are a spec.
#pragma once

#include <vector>

#include "compile-service/lower/group_body.h"
#include "compile-service/lower/loop_dims.h"

namespace kiln::lower {

// Loops of a nest after collapsing, outermost first; strides per operand.
struct NestLoops {
  std::vector<LoopDim> outer, reduce;
  LoopDim inner;
  bool reduce_inner = false;
};

// Whether reducing rows two at a time pays at the hints: what waits for one row's sum works on the other, while rows
// are short. One row alone would be made twice.
bool PaysInPairs(PlanBuilder& builder, const NestLoops& loops, const ir::ScalarProgram& body);

// Fills extents and accesses of a spec; everything but body and stages.
void FillNest(const NestLoops& loops, GroupBody& body, KernelArguments& arguments, ir::LoopNestSpec& spec);
Dim RangeOfNest(PlanBuilder& builder, const NestLoops& loops);

// How bits of a width are moved: the integer that is loaded and stored, and what it is in between.
struct BitsType {
  DType storage, type;
};
BitsType BitsOf(DType dtype);

}  // namespace kiln::lower
