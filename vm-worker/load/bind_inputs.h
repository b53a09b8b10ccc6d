// From tensors a caller names (or merely lists) to the inputs of a program, in order.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/program.h"
#include "common/tensor/tensor.h"

namespace kiln {

struct NamedInput {
  std::string name;  // may be empty, or unknown to the program: then the position counts
  TensorRef tensor;
};

// A tensor as its declaration sees it: one of shape [1] given for a declared scalar is that scalar, as exporters and
// their test data disagree about it (silero's `sr`). Every way into a program takes inputs through this.
TensorRef AsDeclared(TensorRef tensor, bool declared_scalar);

// By name where every given name is an input of the program, else by position. InvalidArgument names an input that is
// missing, given twice or left over; ShapeMismatch one whose dtype, rank or constant dims differ from the declaration.
Result<std::vector<TensorRef>> BindInputs(const Program& program, std::span<const NamedInput> given);

}  // namespace kiln
