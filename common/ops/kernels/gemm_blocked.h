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

// Products of few lines. An element is the sum of its products in kChains chains, product k in chain k % kChains, the
// rest of the depth in one more; it is the same sum however its operands lie in memory.
constexpr int64_t kChains = 8;

// Rounded once where the instruction set can: said aloud, since a compiler may do it in one loop and not in the other.
template <class T>
T MultiplyAdd(T a, T b, T sum) {
#if defined(__FMA__) || defined(__aarch64__)
  if constexpr (sizeof(T) == sizeof(float)) return __builtin_fmaf(a, b, sum);
  return __builtin_fma(a, b, sum);
#else
  return a * b + sum;
#endif
}

// Of a dense line and `kLines` dense lines `stride` apart, to `sums`.
template <int64_t kLines, class T>
void Dots(const T* left, const T* right, int64_t stride, int64_t depth, T* sums) {
  typedef T Chains __attribute__((vector_size(kChains * sizeof(T)), aligned(sizeof(T)), may_alias));
  Chains chains[kLines] = {};
  int64_t k = 0;
  for (; k + kChains <= depth; k += kChains) {
    const Chains x = *reinterpret_cast<const Chains*>(left + k);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLines; ++i) chains[i] += x * *reinterpret_cast<const Chains*>(right + i * stride + k);
  }
  for (int64_t i = 0; i < kLines; ++i) {
    T sum = 0;
    for (int64_t rest = k; rest < depth; ++rest) sum = MultiplyAdd(left[rest], right[i * stride + rest], sum);
    for (int64_t l = 0; l < kChains; ++l) sum += chains[i][l];
    sums[i] = sum;
  }
}

// sums[j] += the products of `kRows` elements of a line and of column j, each `step` apart; one after the other.
template <int64_t kRows, class T>
void AddRows(const T* left, int64_t left_step, const T* right, int64_t right_step, int64_t column_stride,
             int64_t columns, T* __restrict sums) {
  const auto add = [&](int64_t j, const T* column) {
    T sum = sums[j];
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) sum = MultiplyAdd(left[i * left_step], column[i * right_step], sum);
    sums[j] = sum;
  };
  if (column_stride == 1) {
    for (int64_t j = 0; j < columns; ++j) add(j, right + j);
  } else {
    for (int64_t j = 0; j < columns; ++j) add(j, right + j * column_stride);
  }
}

// Of a line and each of up to kStrip columns of a matrix whose rows are read as they lie; to `sums`.
constexpr int64_t kStrip = 512;
template <class T>
void DotStrip(const T* left, int64_t left_stride, const T* right, int64_t row_stride, int64_t column_stride,
              int64_t depth, int64_t columns, T* __restrict sums) {
  T chains[kChains][kStrip];
  const int64_t chained = depth / kChains * kChains;
  for (int64_t j = 0; j < columns; ++j) sums[j] = T(0);
  for (int64_t k = chained; k < depth; ++k)
    AddRows<1>(left + k * left_stride, 0, right + k * row_stride, 0, column_stride, columns, sums);
  if (chained == 0) return;
  for (int64_t l = 0; l < kChains; ++l) {
    for (int64_t j = 0; j < columns; ++j) chains[l][j] = T(0);
  }
  const int64_t left_step = kChains * left_stride, right_step = kChains * row_stride;
  int64_t k = 0;
  for (; k + 4 * kChains <= chained; k += 4 * kChains) {
    for (int64_t l = 0; l < kChains; ++l)
      AddRows<4>(left + (k + l) * left_stride, left_step, right + (k + l) * row_stride, right_step, column_stride,
                 columns, chains[l]);
  }
  for (; k < chained; ++k)
    AddRows<1>(left + k * left_stride, 0, right + k * row_stride, 0, column_stride, columns, chains[k % kChains]);
  for (int64_t j = 0; j < columns; ++j) {
    T sum = sums[j];
#pragma GCC unroll 8
    for (int64_t l = 0; l < kChains; ++l) sum += chains[l][j];
    sums[j] = sum;
  }
}

// `line` of `depth` elements, `stride` apart, as a dense one.
template <class T>
const T* Dense(const T* line, int64_t stride, int64_t depth, T* workspace) {
  if (stride == 1) return line;
  for (int64_t k = 0; k < depth; ++k) workspace[k] = line[k * stride];
  return workspace;
}

template <class T>
void Store(T sum, bool adds, T& to) {
  to = adds ? to + sum : sum;
}

// One dot product per element, with both lines made dense: worth it for few columns, and for few rows too where
// columns are as few as this.
constexpr int64_t kGatheredColumnsMax = 16;
template <class T>
void MultiplyColumns(const GemmOperand<T>& a, const GemmOperand<T>& b, T* c, int64_t c_stride, bool adds,
                     T* workspace) {
  const int64_t depth = b.rows;
  const bool dense_rows = a.column_stride == 1;
  for (int64_t j = 0; j < b.columns; ++j) {
    const T* right = Dense(b.data + j * b.column_stride, b.row_stride, depth, workspace);
    T sums[4];
    int64_t i = 0;
    for (; dense_rows && i + 4 <= a.rows; i += 4) {
      Dots<4>(right, a.data + i * a.row_stride, a.row_stride, depth, sums);
      for (int64_t l = 0; l < 4; ++l) Store(sums[l], adds, c[(i + l) * c_stride + j]);
    }
    for (; i < a.rows; ++i) {
      Dots<1>(right, Dense(a.data + i * a.row_stride, a.column_stride, depth, workspace + depth), 0, depth, sums);
      Store(sums[0], adds, c[i * c_stride + j]);
    }
  }
}

// Few rows: B is read once as it lies, and packing it would cost as much as the product.
template <class T>
void MultiplyRows(const GemmOperand<T>& a, const GemmOperand<T>& b, T* c, int64_t c_stride, bool adds, T* workspace) {
  const int64_t depth = b.rows;
  for (int64_t i = 0; i < a.rows; ++i) {
    T* row = c + i * c_stride;
    const T* left = a.data + i * a.row_stride;
    T sums[kStrip];
    if (b.row_stride != 1) {
      for (int64_t j0 = 0; j0 < b.columns; j0 += kStrip) {
        const int64_t columns = Smaller(kStrip, b.columns - j0);
        DotStrip(left, a.column_stride, b.data + j0 * b.column_stride, b.row_stride, b.column_stride, depth, columns,
                 sums);
        for (int64_t j = 0; j < columns; ++j) Store(sums[j], adds, row[j0 + j]);
      }
      continue;
    }
    const T* dense = Dense(left, a.column_stride, depth, workspace);
    int64_t j = 0;
    for (; j + 4 <= b.columns; j += 4) {
      Dots<4>(dense, b.data + j * b.column_stride, b.column_stride, depth, sums);
      for (int64_t l = 0; l < 4; ++l) Store(sums[l], adds, row[j + l]);
    }
    for (; j < b.columns; ++j) {
      Dots<1>(dense, b.data + j * b.column_stride, 0, depth, sums);
      Store(sums[0], adds, row[j]);
    }
  }
}

template <class T>
int64_t WorkspaceElements(int64_t rows, int64_t columns, int64_t depth) {
  if (rows <= kGemmFewLines || columns <= kGemmFewLines) return 2 * depth;
  const int64_t deep = Smaller(depth, kDepthBlock);
  return deep * (RoundUp(Smaller(rows, kRowBlock), Tile<T>::kRows) +
                 RoundUp(Smaller(columns, kColumnBlock), Tile<T>::kColumns));
}

template <class T>
void Multiply(const GemmOperand<T>& a, const GemmOperand<T>& b, T* c, int64_t c_stride, bool adds, T* workspace) {
  if (a.rows <= kGemmFewLines && b.columns > kGatheredColumnsMax)
    return MultiplyRows(a, b, c, c_stride, adds, workspace);
  if (a.rows <= kGemmFewLines || b.columns <= kGemmFewLines) return MultiplyColumns(a, b, c, c_stride, adds, workspace);
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
