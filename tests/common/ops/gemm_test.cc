// The float products of every rung that this host runs, against sums in long double: any strides, sizes around blocks
// and tiles, 1 among them.
#include "common/ops/kernels/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "common/ops/kernels/gemm_target.h"

namespace kiln::kernels {
namespace {

struct Rung {
  const char* name;
  const GemmRoutines* routines;
};
constexpr std::array<Rung, 3> kRungs = {{{"base", &kGemmBase}, {"v3", &kGemmV3}, {"v4", &kGemmV4}}};

// A matrix of random numbers in a block of its own, by rows or by columns, with a gap between them.
template <class T>
struct Random {
  Random(std::mt19937_64& random, int64_t rows, int64_t columns)
      : by_rows(random() % 2 == 0), stride((by_rows ? columns : rows) + static_cast<int64_t>(random() % 3)) {
    values.resize(static_cast<size_t>((by_rows ? rows : columns) * stride));
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (T& value : values) value = static_cast<T>(uniform(random));
    operand = {values.data(), rows, columns, by_rows ? stride : 1, by_rows ? 1 : stride};
  }
  bool by_rows;
  int64_t stride;
  std::vector<T> values;
  GemmOperand<T> operand;
};

template <class T>
void CheckProduct(const GemmRoutines& routines, std::mt19937_64& random, int64_t m, int64_t n, int64_t k) {
  SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + ", " +
               std::to_string(sizeof(T)) + " bytes");
  const Random<T> a(random, m, k), b(random, k, n);
  const int64_t c_stride = n + static_cast<int64_t>(random() % 3);
  const bool adds = random() % 2 == 0;
  std::vector<T> c(static_cast<size_t>(m * c_stride), T(0.5));
  const auto size = sizeof(T) == 4 ? routines.f32_workspace(m, n, k) : routines.f64_workspace(m, n, k);
  constexpr T kBehind = T(77);
  std::vector<T> workspace(static_cast<size_t>(size) + 1, kBehind);
  if constexpr (sizeof(T) == 4) {
    routines.f32(a.operand, b.operand, c.data(), c_stride, adds, workspace.data());
  } else {
    routines.f64(a.operand, b.operand, c.data(), c_stride, adds, workspace.data());
  }
  EXPECT_EQ(workspace.back(), kBehind) << "more than the workspace was written";
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < c_stride; ++j) {
      long double sum = j >= n || adds ? 0.5L : 0.0L, size_of_terms = 1;
      for (int64_t p = 0; p < k && j < n; ++p) {
        const long double term =
            static_cast<long double>(a.operand.data[i * a.operand.row_stride + p * a.operand.column_stride]) *
            static_cast<long double>(b.operand.data[p * b.operand.row_stride + j * b.operand.column_stride]);
        sum += term;
        size_of_terms += std::abs(term);
      }
      // Each of the k roundings errs by half a unit in the last place of a partial sum.
      const long double unit = sizeof(T) == 4 ? 0x1p-24L : 0x1p-53L;
      ASSERT_NEAR(static_cast<double>(c[static_cast<size_t>(i * c_stride + j)]), static_cast<double>(sum),
                  static_cast<double>(unit * size_of_terms * static_cast<long double>(j < n ? k + 2 : 0)))
          << "element " << i << ", " << j;
    }
  }
}

TEST(Gemm, EveryRungOfTheHostMultiplies) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 31, 33, 64, 65, 100, 129};
  const auto pick = [&] { return sizes[random() % std::size(sizes)]; };
  for (size_t rung = 0; rung < static_cast<size_t>(HostGemmRungs()); ++rung) {
    SCOPED_TRACE(std::string(kRungs[rung].name) + ", seed " + std::to_string(seed));
    for (int i = 0; i < 40; ++i) {
      CheckProduct<float>(*kRungs[rung].routines, random, pick(), pick(), pick());
      CheckProduct<double>(*kRungs[rung].routines, random, pick(), pick(), pick());
    }
    CheckProduct<float>(*kRungs[rung].routines, random, 70, 33, 1100);  // blocks of the depth
    CheckProduct<double>(*kRungs[rung].routines, random, 5, 600, 300);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace kiln::kernels
