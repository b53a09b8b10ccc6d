// Calls that have nothing to compute.
#pragma once

#include <algorithm>

#include "common/ops/reference_kernel.h"
#include "common/ops/tensor_op.h"

namespace kiln {

// Whether every output of a call is there and empty. Such a call needs no kernel, and must not have one: the other dims
// of an empty tensor may be as large as any, and a loop over them would go on for hours.
inline bool IsEmptyCall(const KernelCall& call) {
  const bool open = OpInfo(call.op).effects == OpEffects::kDataShape;  // without data: a size that the kernel tells
  bool any = false;
  for (const TensorRef& output : call.outputs) {
    if (output.data == nullptr && !open) continue;
    if (output.data == nullptr || output.elements() > 0) return false;
    any = true;
  }
  return any;
}

}  // namespace kiln
