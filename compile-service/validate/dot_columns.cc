#include "compile-service/validate/dot_columns.h"

namespace kiln {
namespace {

template <int kColumns>
[[gnu::always_inline]] inline void Dot(std::span<const double> row, const float* columns, int64_t stride, float* out) {
  double sums[kColumns] = {};
  for (size_t k = 0; k < row.size(); ++k) {
    const float* values = columns + static_cast<int64_t>(k) * stride;
    for (int j = 0; j < kColumns; ++j) sums[j] += row[k] * static_cast<double>(values[j]);
  }
  for (int j = 0; j < kColumns; ++j) out[j] = static_cast<float>(sums[j]);
}

template <int kWide>
[[gnu::always_inline]] inline void DotAll(std::span<const double> row, const float* columns, int64_t stride, int64_t n,
                                          float* out) {
  int64_t j = 0;
  for (; j + kWide <= n; j += kWide) Dot<kWide>(row, columns + j, stride, out + j);
  for (; j + 4 <= n; j += 4) Dot<4>(row, columns + j, stride, out + j);
  for (; j < n; ++j) Dot<1>(row, columns + j, stride, out + j);
}

#ifdef __x86_64__
[[gnu::target("avx512f")]] void Dot512(std::span<const double> row, const float* columns, int64_t stride, int64_t n,
                                       float* out) {
  DotAll<32>(row, columns, stride, n, out);
}
[[gnu::target("avx2,fma")]] void Dot256(std::span<const double> row, const float* columns, int64_t stride, int64_t n,
                                        float* out) {
  DotAll<16>(row, columns, stride, n, out);
}
#endif

}  // namespace

void DotColumns(std::span<const double> row, const float* columns, int64_t stride, int64_t n, float* out) {
#ifdef __x86_64__
  static const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0;
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (has_avx512) return Dot512(row, columns, stride, n, out);
  if (has_avx2) return Dot256(row, columns, stride, n, out);
#endif
  DotAll<8>(row, columns, stride, n, out);
}

}  // namespace kiln
