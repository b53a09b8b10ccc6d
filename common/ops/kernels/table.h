// One function per row of the op table that has a kernel: which kernel for which dtype (`run` is null where there is
// none). A missing definition fails to link, so a new row is never forgotten.
#pragma once

#include "common/ops/reference_kernel.h"

namespace kiln::kernels {

// Views are MakeView's, constants and control flow the interpreter's; the rest of the table has kernels.
#define KILN_HAS_KERNEL_Elementwise 1
#define KILN_HAS_KERNEL_Movement 1
#define KILN_HAS_KERNEL_View 0
#define KILN_HAS_KERNEL_Reduction 1
#define KILN_HAS_KERNEL_Contraction 1
#define KILN_HAS_KERNEL_Convolution 1
#define KILN_HAS_KERNEL_Pooling 1
#define KILN_HAS_KERNEL_Normalization 1
#define KILN_HAS_KERNEL_Recurrent 1
#define KILN_HAS_KERNEL_Indexing 1
#define KILN_HAS_KERNEL_Shape 1
#define KILN_HAS_KERNEL_Selection 1
#define KILN_HAS_KERNEL_Quantization 1
#define KILN_HAS_KERNEL_Control 0
#define KILN_HAS_KERNEL_Constant 0
#define KILN_HAS_KERNEL_Other 1

#define KILN_TENSOR_OP(value, name, min_in, max_in, min_out, max_out, dtype_rule, effects, family, doc) \
  ReferenceKernel name(DType dtype);
#include "common/ops/tensor_ops.def"
#undef KILN_TENSOR_OP

}  // namespace kiln::kernels
