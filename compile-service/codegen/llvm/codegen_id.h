// The identity of the code generator, for whoever names kernels without generating them.
#pragma once

#include "common/base/hash.h"

namespace kiln::codegen {

// Hash of the code generator's sources and the LLVM version, made by the build. Part of every KernelKey.
const Digest& CodegenId();

}  // namespace kiln::codegen
