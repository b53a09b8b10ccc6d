// How a kernel reduces: what it computes with, and what the result is in the type of the tensor.
#pragma once

#include <optional>

#include "common/ops/tensor_op.h"
#include "compile-service/lower/scalar_program.h"

namespace kiln::lower {

struct Reduction {
  ir::Combine combine = ir::Combine::kSum;
  DType type{};  // of terms and accumulator
};

// nullopt: no kernel reduces that dtype so. Sums and products of integers wrap as the reference's do.
std::optional<Reduction> ReductionOf(TensorOp op, DType dtype);

// The finished reduction (of ReduceMean: the mean), as kernels compute with values of `dtype`.
int32_t AddReduced(ScalarBuilder& scalars, const Reduction& reduction, DType dtype, int32_t result);

}  // namespace kiln::lower
