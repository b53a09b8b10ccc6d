// Sizes of what a region gives that does not run: the elements of a loop's scanned outputs when there is no trip.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/bytecode/program.h"

namespace kiln {

// Per output of `body`, a region of `function`: the dims that the shape rules of its nodes give for inputs of these
// types and dims (`data` is not read). A dim that only a run tells is what the program states, as far as the symbols of
// `frame` say (negative where unbound), else 0; nullopt where the rank is not known.
std::vector<std::optional<Dims>> BodyOutputDims(const Program& program, const Function& function, const Region& body,
                                                std::span<const TensorRef> inputs, std::span<const int64_t> frame);

}  // namespace kiln
