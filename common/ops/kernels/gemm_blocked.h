// The blocked matrix product, written once and compiled once per instruction set: gemm_base.cc, gemm_v3.cc and
// gemm_v4.cc include this file under flags of their own. Everything here has internal linkage and nothing is included
// besides fixed-width integers: an inline function shared with other files could be linked from a file whose
// instructions the host lacks.
//
// The including file defines KILN_VECTOR_BYTES, KILN_TILE_ROWS and KILN_TILE_VECTORS: the micro-kernel holds
// rows x vectors accumulators in registers.
#pragma once

#include <cstdint>

#include "common/ops/kernels/gemm_target.h"

namespace kiln::kernels {
namespace {

constexpr int64_t kDepthBlock = 256;  // of the shared dim: a panel of B stays in the first-level cache
constexpr int64_t kRowBlock = 96;     // of A's rows: a block of A stays in the second-level cache
constexpr int64_t kColumnBlock = 1024;

template <class T>
struct Tile {
  typedef T Vector __attribute__((vector_size(KILN_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
  static constexpr int64_t kLanes = KILN_VECTOR_BYTES / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kRows = KILN_TILE_ROWS;
  static constexpr int64_t kColumns = kLanes * KILN_TILE_VECTORS;
};

constexpr int64_t RoundUp(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}
constexpr int64_t Smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// A[rows, depth] as tiles of kRows: element (i, k) of a tile at k * kRows + i, missing rows are zero.
template <class T>
void PackLeft(const GemmOperand<T>& a, int64_t row, int64_t rows, int64_t k0, int64_t depth, T* out) {
  for (int64_t tile = 0; tile < rows; tile += Tile<T>::kRows) {
    const int64_t here = Smaller(Tile<T>::kRows, rows - tile);
    for (int64_t i = 0; i < Tile<T>::kRows; ++i) {
      const T* from = a.data + (row + tile + i) * a.row_stride + k0 * a.column_stride;
      for (int64_t k = 0; k < depth; ++k) out[k * Tile<T>::kRows + i] = i < here ? from[k * a.column_stride] : T(0);
    }
    out += depth * Tile<T>::kRows;
  }
}

// B[depth, columns] as panels of kColumns: element (k, j) of a panel at k * kColumns + j, missing columns are zero.
template <class T>
void PackRight(const GemmOperand<T>& b, int64_t k0, int64_t depth, int64_t column, int64_t columns, T* out) {
  for (int64_t panel = 0; panel < columns; panel += Tile<T>::kColumns) {
    const int64_t here = Smaller(Tile<T>::kColumns, columns - panel);
    const T* from = b.data + k0 * b.row_stride + (column + panel) * b.column_stride;
    if (b.column_stride == 1) {
      for (int64_t k = 0; k < depth; ++k) {
        T* to = out + k * Tile<T>::kColumns;
        for (int64_t j = 0; j < here; ++j) to[j] = from[k * b.row_stride + j];
        for (int64_t j = here; j < Tile<T>::kColumns; ++j) to[j] = T(0);
      }
    } else {
      for (int64_t j = 0; j < Tile<T>::kColumns; ++j) {
        for (int64_t k = 0; k < depth; ++k) {
          out[k * Tile<T>::kColumns + j] = j < here ? from[k * b.row_stride + j * b.column_stride] : T(0);
        }
      }
    }
    out += depth * Tile<T>::kColumns;
  }
}

// One tile of C: `rows` x `columns` of kRows x kColumns. Starts from C when `adds`, else from zero.
template <class T>
void MultiplyTile(const T* __restrict a, const T* __restrict b, int64_t depth, T* c, int64_t c_stride, int64_t rows,
                  int64_t columns, bool adds) {
  using Vector = typename Tile<T>::Vector;
  constexpr int64_t kRows = Tile<T>::kRows;
  constexpr int64_t kLanes = Tile<T>::kLanes;
  Vector sums[kRows][KILN_TILE_VECTORS] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vector right[KILN_TILE_VECTORS];
#pragma GCC unroll 4
    for (int64_t v = 0; v < KILN_TILE_VECTORS; ++v) {
      right[v] = *reinterpret_cast<const Vector*>(b + k * Tile<T>::kColumns + v * kLanes);
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < kRows; ++i) {
      const T left = a[k * kRows + i];
#pragma GCC unroll 4
      for (int64_t v = 0; v < KILN_TILE_VECTORS; ++v) sums[i][v] += left * right[v];
    }
  }
  if (rows == kRows && columns == Tile<T>::kColumns) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int64_t v = 0; v < KILN_TILE_VECTORS; ++v) {
        Vector* to = reinterpret_cast<Vector*>(c + i * c_stride + v * kLanes);
        *to = adds ? *to + sums[i][v] : sums[i][v];
      }
    }
    return;
  }
  T edge[kRows * Tile<T>::kColumns];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t v = 0; v < KILN_TILE_VECTORS; ++v) {
      *reinterpret_cast<Vector*>(edge + i * Tile<T>::kColumns + v * kLanes) = sums[i][v];
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const T sum = edge[i * Tile<T>::kColumns + j];
      c[i * c_stride + j] = adds ? c[i * c_stride + j] + sum : sum;
    }
  }
}

// Sum of left[k] * right[k * stride], in sixteen chains where both lie densely.
template <class T>
T Dot(const T* left, const T* right, int64_t stride, int64_t depth) {
  constexpr int64_t kChains = 16;
  T lanes[kChains] = {};
  int64_t k = 0;
  if (stride == 1) {
    for (; k + kChains <= depth; k += kChains) {
      for (int64_t l = 0; l < kChains; ++l) lanes[l] += left[k + l] * right[k + l];
    }
  }
  T sum = 0;
  for (; k < depth; ++k) sum += left[k] * right[k * stride];
  for (int64_t l = 0; l < kChains; ++l) sum += lanes[l];
  return sum;
}

// `line` of `depth` elements, `stride` apart, as a dense one.
template <class T>
const T* Dense(const T* line, int64_t stride, int64_t depth, T* workspace) {
  if (stride == 1) return line;
  for (int64_t k = 0; k < depth; ++k) workspace[k] = line[k * stride];
  return workspace;
}

// Few columns: one dot product per element, with B's columns made dense.
template <class T>
void MultiplyColumns(const GemmOperand<T>& a, const GemmOperand<T>& b, T* c, int64_t c_stride, bool adds,
                     T* workspace) {
  for (int64_t j = 0; j < b.columns; ++j) {
    const T* right = Dense(b.data + j * b.column_stride, b.row_stride, b.rows, workspace);
    for (int64_t i = 0; i < a.rows; ++i) {
      const T sum = Dot(right, a.data + i * a.row_stride, a.column_stride, b.rows);
      T& to = c[i * c_stride + j];
      to = adds ? to + sum : sum;
    }
  }
}

// Few rows: B is read once as it lies, and packing it would cost as much as the product.
template <class T>
void MultiplyRows(const GemmOperand<T>& a, const GemmOperand<T>& b, T* c, int64_t c_stride, bool adds, T* workspace) {
  for (int64_t i = 0; i < a.rows; ++i) {
    T* __restrict row = c + i * c_stride;
    const T* left = a.data + i * a.row_stride;
    if (b.column_stride != 1) {
      const T* dense = Dense(left, a.column_stride, b.rows, workspace);
      for (int64_t j = 0; j < b.columns; ++j) {
        const T sum = Dot(dense, b.data + j * b.column_stride, b.row_stride, b.rows);
        row[j] = adds ? row[j] + sum : sum;
      }
      continue;
    }
    if (!adds) {
      for (int64_t j = 0; j < b.columns; ++j) row[j] = T(0);
    }
    int64_t k = 0;
    for (; k + 4 <= b.rows; k += 4) {
      const T* r0 = b.data + k * b.row_stride;
      const T *r1 = r0 + b.row_stride, *r2 = r1 + b.row_stride, *r3 = r2 + b.row_stride;
      const T l0 = left[k * a.column_stride], l1 = left[(k + 1) * a.column_stride];
      const T l2 = left[(k + 2) * a.column_stride], l3 = left[(k + 3) * a.column_stride];
      for (int64_t j = 0; j < b.columns; ++j) row[j] += l0 * r0[j] + l1 * r1[j] + (l2 * r2[j] + l3 * r3[j]);
    }
    for (; k < b.rows; ++k) {
      const T* right = b.data + k * b.row_stride;
      const T l = left[k * a.column_stride];
      for (int64_t j = 0; j < b.columns; ++j) row[j] += l * right[j];
    }
  }
}

template <class T>
int64_t WorkspaceElements(int64_t rows, int64_t columns, int64_t depth) {
  if (rows <= kGemmFewLines || columns <= kGemmFewLines) return depth;
  const int64_t deep = Smaller(depth, kDepthBlock);
  return deep * (RoundUp(Smaller(rows, kRowBlock), Tile<T>::kRows) +
                 RoundUp(Smaller(columns, kColumnBlock), Tile<T>::kColumns));
}

template <class T>
void Multiply(const GemmOperand<T>& a, const GemmOperand<T>& b, T* c, int64_t c_stride, bool adds, T* workspace) {
  if (a.rows <= kGemmFewLines) return MultiplyRows(a, b, c, c_stride, adds, workspace);
  if (b.columns <= kGemmFewLines) return MultiplyColumns(a, b, c, c_stride, adds, workspace);
  static_assert(kRowBlock % Tile<T>::kRows == 0 && kColumnBlock % Tile<T>::kColumns == 0);
  T* const right = workspace;
  T* const left =
      workspace + Smaller(a.columns, kDepthBlock) * RoundUp(Smaller(b.columns, kColumnBlock), Tile<T>::kColumns);
  for (int64_t j0 = 0; j0 < b.columns; j0 += kColumnBlock) {
    const int64_t columns = Smaller(kColumnBlock, b.columns - j0);
    for (int64_t k0 = 0; k0 < a.columns; k0 += kDepthBlock) {
      const int64_t depth = Smaller(kDepthBlock, a.columns - k0);
      PackRight(b, k0, depth, j0, columns, right);
      for (int64_t i0 = 0; i0 < a.rows; i0 += kRowBlock) {
        const int64_t rows = Smaller(kRowBlock, a.rows - i0);
        PackLeft(a, i0, rows, k0, depth, left);
        for (int64_t j = 0; j < columns; j += Tile<T>::kColumns) {
          for (int64_t i = 0; i < rows; i += Tile<T>::kRows) {
            MultiplyTile(left + i * depth, right + j * depth, depth, c + (i0 + i) * c_stride + j0 + j, c_stride,
                         Smaller(Tile<T>::kRows, rows - i), Smaller(Tile<T>::kColumns, columns - j), adds || k0 > 0);
          }
        }
      }
    }
  }
}

constexpr GemmRoutines kRoutines = {&WorkspaceElements<float>, &Multiply<float>, &WorkspaceElements<double>,
                                    &Multiply<double>};

}  // namespace
}  // namespace kiln::kernels
