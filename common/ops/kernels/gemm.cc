#include "common/ops/kernels/gemm.h"

#include <algorithm>

#include "common/ops/kernels/gemm_target.h"

namespace kiln::kernels {

int HostGemmRungs() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? 3 : v3 ? 2 : 1;
#else
  return 1;
#endif
}

namespace {

const GemmRoutines& Routines() {
  static const GemmRoutines& routines = [] -> const GemmRoutines& {
    const int rungs = HostGemmRungs();
    return rungs == 3 ? kGemmV4 : rungs == 2 ? kGemmV3 : kGemmBase;
  }();
  return routines;
}

template <class T>
GemmOperand<T> Operand(const Matrix<const T>& m) {
  return {m.data, m.rows, m.columns, m.row_stride, m.column_stride};
}

template <class T>
Status FloatGemm(KernelCall& call, const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c,
                 bool accumulate) {
  const GemmRoutines& routines = Routines();
  const auto workspace = std::is_same_v<T, float> ? routines.f32_workspace : routines.f64_workspace;
  ASSIGN_OR_RETURN(T * memory, Scratch<T>(call, workspace(c.rows, c.columns, a.columns)));
  if constexpr (std::is_same_v<T, float>) {
    routines.f32(Operand(a), Operand(b), c.data, c.row_stride, accumulate, memory);
  } else {
    routines.f64(Operand(a), Operand(b), c.data, c.row_stride, accumulate, memory);
  }
  return {};
}

// Row times row with the inner loop over columns: exact and without undefined overflow.
template <class T>
void IntegerGemm(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c, bool accumulate) {
  for (int64_t i = 0; i < c.rows; ++i) {
    T* row = c.data + i * c.row_stride;
    if (!accumulate) std::fill_n(row, c.columns, T(0));
    for (int64_t k = 0; k < a.columns; ++k) {
      const T left = a.data[i * a.row_stride + k * a.column_stride];
      if (left == T(0)) continue;
      const T* right = b.data + k * b.row_stride;
      for (int64_t j = 0; j < c.columns; ++j) row[j] = WrapAdd(row[j], WrapMul(left, right[j * b.column_stride]));
    }
  }
}

}  // namespace

template <class T>
Status Gemm(KernelCall& call, const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c, bool accumulate) {
  if (c.rows == 0 || c.columns == 0) return {};
  if (a.columns == 0) {
    for (int64_t i = 0; i < c.rows && !accumulate; ++i) std::fill_n(c.data + i * c.row_stride, c.columns, T(0));
    return {};
  }
  if constexpr (std::is_floating_point_v<T>) {
    return FloatGemm(call, a, b, c, accumulate);
  } else {
    IntegerGemm(a, b, c, accumulate);
    return {};
  }
}

#define KILN_GEMM(T) \
  template Status Gemm<T>(KernelCall&, const Matrix<const T>&, const Matrix<const T>&, const Matrix<T>&, bool);
KILN_GEMM(float)
KILN_GEMM(double)
KILN_GEMM(int32_t)
KILN_GEMM(uint32_t)
KILN_GEMM(int64_t)
KILN_GEMM(uint64_t)
#undef KILN_GEMM

}  // namespace kiln::kernels
