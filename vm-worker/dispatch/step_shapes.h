// The op's own shape rule, asked about a reference step whose views are evaluated: a plan's bytes say what a step
// writes, and reference kernels trust what they are given.
#pragma once

#include <span>

#include "common/artifact/plan.h"
#include "common/tensor/tensor.h"

namespace kiln {

// Inputs and outputs are nullptr where absent. An input's `data` points at its contents when they are known before the
// run (weights, packed weights, shape vectors) and is nullptr otherwise. IntegrityFailure unless every output has the
// dtype and, as far as the rule can tell, the dims that the rule gives. Not for ShapeVector.
Status CheckStepShapes(const ReferenceStep& step, std::span<const TensorRef* const> inputs,
                       std::span<const TensorRef* const> outputs);

}  // namespace kiln
