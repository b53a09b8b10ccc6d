// The float matrix product per instruction set. Plain data and function pointers only: this header is included by files
// that are compiled for instruction sets the host may lack.
#pragma once

#include <cstdint>

namespace kiln::kernels {

// Products of at most this many rows or columns read their operands as they lie.
inline constexpr int64_t kGemmFewLines = 3;

// Element (i, j) at data[i * row_stride + j * column_stride].
template <class T>
struct GemmOperand {
  const T* data;
  int64_t rows, columns;
  int64_t row_stride, column_stride;
};

// c = a*b, or c += a*b when `adds`; `c` is row-major, nothing is empty. `workspace` holds as many elements as the
// first function says for (rows of a, columns of b, columns of a).
struct GemmRoutines {
  int64_t (*f32_workspace)(int64_t rows, int64_t columns, int64_t depth);
  void (*f32)(const GemmOperand<float>& a, const GemmOperand<float>& b, float* c, int64_t c_stride, bool adds,
              float* workspace);
  int64_t (*f64_workspace)(int64_t rows, int64_t columns, int64_t depth);
  void (*f64)(const GemmOperand<double>& a, const GemmOperand<double>& b, double* c, int64_t c_stride, bool adds,
              double* workspace);
};

// One per rung of the instruction set ladder; a rung that the build's machine has no flags for is the base rung.
extern const GemmRoutines kGemmBase;
extern const GemmRoutines kGemmV3;
extern const GemmRoutines kGemmV4;

// How many of kGemmBase, kGemmV3, kGemmV4, in this order, the host runs; the last of them is used.
int HostGemmRungs();

}  // namespace kiln::kernels
