// What a program without control flow means: its nodes one after the other, by shape rule and reference kernel. A
// second reading beside the worker's interpreter, which shares rules and kernels with it and nothing else.
#pragma once

#include <span>
#include <vector>

#include "common/segment/segment.h"

namespace kiln {

// Runs the entry function. `inputs`: one per input of the function, contiguous. `frame`: a value per symbol, negative
// where unknown; `sources` (may be empty) says which of them the sizes of values define. The outputs are contiguous.
// Errors are those of rules and kernels, ShapeMismatch where a value has other sizes than the program states,
// ResourceExhausted where the values alive at once need more than bytes_max.
Result<std::vector<Tensor>> RunByReference(const Program& program, std::span<const TensorRef> inputs,
                                           std::vector<int64_t> frame, std::span<const SymbolSource> sources,
                                           int64_t bytes_max);

}  // namespace kiln
