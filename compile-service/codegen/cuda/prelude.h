// What every kernel's text begins with: types of memory, shared memory, conversions, arithmetic with the meanings of
// scalar_ops.def.
#pragma once

#include <string_view>

namespace kiln::codegen::cuda {

extern const std::string_view kPrelude;

}  // namespace kiln::codegen::cuda
