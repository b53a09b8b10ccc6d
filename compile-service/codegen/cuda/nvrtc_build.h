// Which NVRTC there is and how it is called: the identity of the code generator for GPUs, for whoever names kernels
// without generating them.
#pragma once

#include <string>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/hash.h"
#include "common/base/result.h"

namespace kiln::codegen::cuda {

// Where the library lies: `given`, or where the loader finds libnvrtc.so.13, or the toolkit's usual place. Does not
// open it. NotFound names the places and what to do.
Result<std::string> FindNvrtc(const std::string& given);

// What NVRTC is called with for a target.
std::vector<std::string> NvrtcOptions(Target target);

// Hash of the emitters' sources, of the library's contents (its version number does not tell builds apart) and of the
// options. Part of every KernelKey of a GPU. The library is read once per process. Thread-safe.
Result<Digest> CudaCodegenId(Target target, const std::string& nvrtc);

}  // namespace kiln::codegen::cuda
