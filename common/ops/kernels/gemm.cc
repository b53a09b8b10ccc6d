#include "common/ops/kernels/gemm.h"

// Panels are packed on the stack, not on the heap: Eigen cuts them to the second-level cache, at most 1.5 MiB each.
#define EIGEN_STACK_ALLOCATION_LIMIT (2 << 20)
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_MPL2_ONLY
#include <Eigen/Core>

namespace kiln::kernels {
namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using ColumnMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
using OuterStride = Eigen::OuterStride<>;

// Strides that Eigen's product reads without a copy: one of the two is 1 and the other at least the line it steps over.
template <class T>
Result<Matrix<const T>> Packed(KernelCall& call, const Matrix<const T>& m) {
  const bool by_row = (m.column_stride == 1 || m.columns == 1) && m.row_stride >= m.columns;
  const bool by_column = (m.row_stride == 1 || m.rows == 1) && m.column_stride >= m.rows;
  if (by_row || by_column) return m;
  ASSIGN_OR_RETURN(T * copy, Scratch<T>(call, m.rows * m.columns));
  for (int64_t i = 0; i < m.rows; ++i) {
    for (int64_t j = 0; j < m.columns; ++j) {
      copy[i * m.columns + j] = m.data[i * m.row_stride + j * m.column_stride];
    }
  }
  return Matrix<const T>{copy, m.rows, m.columns, m.columns, 1};
}

template <class T>
bool IsByRow(const Matrix<const T>& m) {
  return (m.column_stride == 1 || m.columns == 1) && m.row_stride >= m.columns;
}

template <class T, class A, class B>
void Multiply(const A& a, const B& b, const Matrix<T>& c, bool accumulate) {
  Eigen::Map<RowMajor<T>, 0, OuterStride> out(c.data, c.rows, c.columns, OuterStride(c.row_stride));
  if (accumulate) {
    out.noalias() += a * b;
  } else {
    out.noalias() = a * b;
  }
}

template <class T, class A>
void MultiplyRight(const A& a, const Matrix<const T>& b, const Matrix<T>& c, bool accumulate) {
  if (IsByRow(b)) {
    const Eigen::Map<const RowMajor<T>, 0, OuterStride> right(b.data, b.rows, b.columns, OuterStride(b.row_stride));
    Multiply(a, right, c, accumulate);
  } else {
    const Eigen::Map<const ColumnMajor<T>, 0, OuterStride> right(b.data, b.rows, b.columns,
                                                                 OuterStride(b.column_stride));
    Multiply(a, right, c, accumulate);
  }
}

template <class T>
Status FloatGemm(KernelCall& call, const Matrix<const T>& a_in, const Matrix<const T>& b_in, const Matrix<T>& c,
                 bool accumulate) {
  ASSIGN_OR_RETURN(const Matrix<const T> a, Packed(call, a_in));
  ASSIGN_OR_RETURN(const Matrix<const T> b, Packed(call, b_in));
  if (IsByRow(a)) {
    const Eigen::Map<const RowMajor<T>, 0, OuterStride> left(a.data, a.rows, a.columns, OuterStride(a.row_stride));
    MultiplyRight(left, b, c, accumulate);
  } else {
    const Eigen::Map<const ColumnMajor<T>, 0, OuterStride> left(a.data, a.rows, a.columns,
                                                                OuterStride(a.column_stride));
    MultiplyRight(left, b, c, accumulate);
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
