// Matrix products on strided operands: float ones by a blocked routine compiled per instruction set and chosen at run
// time (gemm_blocked.h), integer ones by plain loops.
#pragma once

#include "common/ops/kernels/kernel.h"

namespace kiln::kernels {

// A matrix in memory: element (i, j) at data[i * row_stride + j * column_stride].
template <class T>
struct Matrix {
  T* data;
  int64_t rows, columns;
  int64_t row_stride, column_stride;
};

// c = a*b, or c += a*b when `accumulate`. `c` is row-major with column stride 1. Operands are packed
// into scratch, block by block. Instantiated for float, double, int32_t, uint32_t, int64_t, uint64_t; integers wrap.
template <class T>
Status Gemm(KernelCall& call, const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c, bool accumulate);

}  // namespace kiln::kernels
