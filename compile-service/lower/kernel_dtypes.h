// What kernels read, write and compute with.
#pragma once

#include <optional>

#include "common/tensor/dtype.h"

namespace kiln::lower {

// Dtypes that kernels read and write.
bool IsKernelDType(DType dtype);
bool IsByte(DType dtype);  // u8, i8
bool IsHalf(DType dtype);  // f16, bf16
// What a kernel computes with for values of a kernel dtype: i32 for bytes, f32 for halves, else the dtype itself.
DType ComputeType(DType dtype);
// The same of any dtype, where sums and products that wrap are right: narrow integers in i32, u32 and u64 in i64.
std::optional<DType> WideType(DType dtype);

}  // namespace kiln::lower
