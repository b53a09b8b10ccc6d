// What a program declares of the inputs of its entry: how they are called in messages, and whether a tensor is one.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/bytecode/program.h"

namespace kiln {

// "input "x"", or "input 2" where it has no name.
std::string InputText(const Program& program, size_t index);
// "dim 1 of input "x"": the first dim that is the symbol; "" where no input shows it.
std::string PlaceOf(const Program& program, SymbolId symbol);

// ShapeMismatch unless the tensor has the dtype, rank and constant dims of input `index`. Symbols are not looked at.
Status CheckDeclared(const Program& program, size_t index, const TensorRef& tensor);

}  // namespace kiln
