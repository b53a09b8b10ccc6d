// How much memory each pointer of a kernel reaches for given dims arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln {

struct PointerExtent {
  DType dtype = DType::kF32;
  int64_t before = 0;    // elements below the pointer (negative strides)
  int64_t elements = 0;  // in all; the kernel touches [pointer - before, pointer - before + elements)
  bool written = false;
  bool zeros = false;  // must hold zeros (the border row of convolutions)
  // Weights of a recurrence: of this size at most, or rounding errors would grow over time without bound.
  double size = 1;
  int64_t entries = 0;  // more than 0: holds positions among so many entries, counted from either end
};

// Fails when an address overflows, or a pointer is used under two dtypes. Invariant operands (strides 0) count as read
// even where a loop is empty: code may load them ahead of it.
Result<std::vector<PointerExtent>> PointerExtents(const ir::KernelSpec& spec, std::span<const int64_t> dims,
                                                  int f32_lanes);

// Scalar operations of one unit of the spec's range, roughly; for choosing how much to try.
int64_t UnitCost(const ir::KernelSpec& spec, std::span<const int64_t> dims, int f32_lanes);

}  // namespace kiln
