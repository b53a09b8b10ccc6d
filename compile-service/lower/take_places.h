// In place: which temporaries of a plan may have the memory of an operand that ends with them.
#pragma once

#include <span>

#include "common/artifact/plan.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::lower {

// Sets `in_place_of` where, in the step that uses the temporary first and the operand last, the kernel allows it
// (ir/in_place.h) and sizes, offsets and strides are the same expressions. `specs`: per kernel of the plan. Lifetimes
// are set.
void TakePlaces(Plan& plan, std::span<const ir::KernelSpec> specs);

// Whether every `in_place_of` of a plan of anybody is one that TakePlaces may set. CompileFailed names the buffer.
Status CheckPlaces(const Plan& plan, std::span<const ir::KernelSpec> specs);

}  // namespace kiln::lower
