// The code generator of a target: LLVM's for processors, NVRTC's for GPUs.
#pragma once

#include <string>

#include "common/artifact/target.h"
#include "common/base/hash.h"
#include "common/base/result.h"

namespace kiln {

// Argument of a compile child, before the path of NVRTC.
inline constexpr char kNvrtcArgument[] = "--nvrtc=";

// Its identity. `nvrtc`: the library's path, empty where there is none: Unsupported for a GPU then. The front and its
// children are given the same path, so that both name kernels alike. Thread-safe.
Result<Digest> CodegenIdOf(Target target, const std::string& nvrtc);

}  // namespace kiln
