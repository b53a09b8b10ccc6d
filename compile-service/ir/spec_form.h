// A kernel's form in a few words, for the labels of plan steps.
#pragma once

#include <string>

#include "compile-service/ir/kernel_spec.h"

namespace kiln::ir {

// Register tile and operand form, or the shape of the loops: "tile 12x2, b in panels", "loops 2 + 1 reduced", "window
// 3x3".
std::string SpecForm(const KernelSpec& spec);

}  // namespace kiln::ir
