// What a kernel step's work is estimated at (KernelStep::cost), in scalar operations of a product, about 100 per
// nanosecond: a worker shares a kernel among threads by it.
#pragma once

#include <cstdint>
#include <span>

#include "common/shape/symbol_table.h"
#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

// A byte that comes from memory or goes there, at 17 GB/s. A kernel that does little with each one is bound by them:
// a product of one row reads 4 bytes per two operations.
inline constexpr int64_t kOperationsPerByte = 6;

// `per_element` operations and the traffic of `operands` for each element of `space`. Operands that are broadcast along
// a dim stay in a cache and count nothing.
Dim CostOfElements(PlanBuilder& builder, std::span<const Dim> space, int64_t per_element,
                   std::span<const Operand> operands);
// Reading `elements` of a type once.
Dim CostOfReading(SymbolTable& symbols, Dim elements, DType dtype);

}  // namespace kiln::lower
