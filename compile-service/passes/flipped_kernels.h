// The weights of a transposed convolution as those of the convolution that takes its place.
#pragma once

#include <cstdint>

#include "compile-service/passes/rewriter.h"

namespace kiln::passes {

// Weights [groups * in, out, kernel…] as [groups * out, in, kernel…], every kernel back to front.
ir::GraphValueId FlippedKernels(Rewriter& rewriter, ir::GraphValueId weights, int64_t groups);

}  // namespace kiln::passes
