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
  int64_t elements = 0;     // from the pointer on; the kernel touches nothing below or beyond
  bool written = false;
  bool zeros = false;       // must hold zeros (the border row of convolutions)
};

// Fails when an access reaches below its pointer, or a pointer is used under two dtypes.
Result<std::vector<PointerExtent>> PointerExtents(const ir::KernelSpec& spec, std::span<const int64_t> dims, int f32_lanes);

// Scalar operations of one unit of the spec's range, roughly; for choosing how much to try.
int64_t UnitCost(const ir::KernelSpec& spec, std::span<const int64_t> dims, int f32_lanes);

}  // namespace kiln
