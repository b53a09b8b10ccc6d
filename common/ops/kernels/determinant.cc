// Det, and BitCast, which reads no numbers at all.
#include <cmath>
#include <cstring>
#include <utility>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

// Elimination with partial pivoting; destroys `m`.
double Determinant(double* m, int64_t n) {
  double determinant = 1;
  for (int64_t column = 0; column < n; ++column) {
    int64_t pivot = column;
    for (int64_t row = column + 1; row < n; ++row) {
      if (std::fabs(m[row * n + column]) > std::fabs(m[pivot * n + column])) pivot = row;
    }
    if (m[pivot * n + column] == 0) return 0;
    if (pivot != column) {
      for (int64_t i = column; i < n; ++i) std::swap(m[pivot * n + i], m[column * n + i]);
      determinant = -determinant;
    }
    const double head = m[column * n + column];
    determinant *= head;
    for (int64_t row = column + 1; row < n; ++row) {
      const double factor = m[row * n + column] / head;
      for (int64_t i = column + 1; i < n; ++i) m[row * n + i] -= factor * m[column * n + i];
    }
  }
  return determinant;
}

struct DetOf {
  template <class T>
  static Status Run(KernelCall& call) {
    const TensorRef& in = call.inputs[0];
    const int64_t n = in.dims.back();
    const int64_t count = call.outputs[0].elements();
    ASSIGN_OR_RETURN(double* matrix, Scratch<double>(call, n * n));
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t k = 0; k < n * n; ++k) matrix[k] = in.as<T>()[i * n * n + k];
      call.outputs[0].as<T>()[i] = static_cast<T>(Determinant(matrix, n));
    }
    return {};
  }
};

Status RunBitCast(KernelCall& call) {
  std::memcpy(call.outputs[0].data, call.inputs[0].data, static_cast<size_t>(call.inputs[0].bytes()));
  return {};
}

}  // namespace

ReferenceKernel Det(DType dtype) {
  return {FloatKernel<DetOf>(dtype), false};
}
ReferenceKernel BitCast(DType) {
  return {&RunBitCast, false};
}

}  // namespace kiln::kernels
