#include "bench/kernels/fma_peak.h"

#include <immintrin.h>

#include <ctime>

namespace kiln::bench {
namespace {

constexpr int kIterations = 20000;

__attribute__((target("avx512f"), noinline)) float Peak512() {
  __m512 sums[20], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  for (auto& sum : sums) sum = a;
  for (int i = 0; i < kIterations; ++i) {
#pragma GCC unroll 20
    for (auto& sum : sums) sum = _mm512_fmadd_ps(sum, a, b);
  }
  for (int i = 1; i < 20; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

__attribute__((target("avx2,fma"), noinline)) float Peak256() {
  __m256 sums[12], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  for (auto& sum : sums) sum = a;
  for (int i = 0; i < kIterations; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = _mm256_fmadd_ps(sum, a, b);
  }
  for (int i = 1; i < 12; ++i) sums[0] = _mm256_add_ps(sums[0], sums[i]);
  return _mm256_cvtss_f32(sums[0]);
}

__attribute__((noinline)) float Peak128() {
  __m128 sums[12], a = _mm_set1_ps(0.5f), b = _mm_set1_ps(0.25f);
  for (auto& sum : sums) sum = a;
  for (int i = 0; i < kIterations; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = _mm_add_ps(_mm_mul_ps(sum, a), b);
  }
  for (int i = 1; i < 12; ++i) sums[0] = _mm_add_ps(sums[0], sums[i]);
  return _mm_cvtss_f32(sums[0]);
}

}  // namespace

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double MeasurePeak(Target target) {
  const int lanes = InfoOf(target).f32_lanes();
  const int vectors = lanes == 16 ? 20 : 12;
  const double start = ThreadSeconds();
  volatile float sink = lanes == 16 ? Peak512() : lanes == 8 ? Peak256() : Peak128();
  (void)sink;
  return 2.0 * lanes * vectors * kIterations / (ThreadSeconds() - start) * 1e-9;
}

}  // namespace kiln::bench
