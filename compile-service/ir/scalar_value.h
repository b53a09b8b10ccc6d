// The arithmetic of scalar programs, one value at a time: what each row of scalar_ops.def means. For the naive
// evaluator.
#pragma once

#include <cstdint>

#include "compile-service/ir/kernel_spec.h"

namespace kiln::ir {

// A value of a compute type: floats in `number`, integers and bool in `integer`.
struct Scalar {
  double number = 0;
  int64_t integer = 0;
};

// `number` as a value of a float compute type holds it.
Scalar Rounded(DType type, double number);
// Element `offset` of memory of a storage dtype, as a compute type; and back.
Scalar LoadElement(DType storage, DType type, const void* pointer, int64_t offset);
void StoreElement(DType storage, DType type, const Scalar& value, void* pointer, int64_t offset);
double Maximum(double a, double b);  // a NaN wins
// Sums and products of floats stay in double: the caller rounds the finished one.
Scalar Combined(Combine combine, DType type, const Scalar& a, const Scalar& b);
Scalar Identity(Combine combine, DType type);
// A node that is no leaf; `operand`: the type of its last operand.
Scalar Applied(const ScalarNode& node, DType operand, const Scalar& a, const Scalar& b, const Scalar& c);

}  // namespace kiln::ir
