// Scalar programs of kernel specs, as they are written.
#pragma once

#include "compile-service/ir/kernel_spec.h"

namespace kiln::lower {

// Builds a scalar program; equal operations are made once.
class ScalarBuilder {
 public:
  int32_t Add(ir::ScalarNode node);
  int32_t Op(ir::ScalarOp op, DType type, int32_t a, int32_t b = -1, int32_t c = -1) {
    return Add({op, type, a, b, c});
  }
  int32_t Load(DType type, int32_t access);
  int32_t Number(DType type, double value);  // constant of any type
  int32_t Integer(int64_t value);            // i64 constant
  int32_t Integer(ir::SpecInt value);        // i64: a constant, or an argument of the kernel
  int32_t As(DType type, int32_t value);     // converted, where it is of another type
  // An i64 index of [-size, size), counted from the front.
  int32_t FromFront(int32_t index, int32_t size);
  // A whole number of a float type, saturated to u8 or i8, as i32.
  int32_t Saturated(int32_t number, DType byte);
  DType TypeOf(int32_t scalar) const { return program_[static_cast<size_t>(scalar)].type; }
  ir::ScalarProgram Take() { return std::move(program_); }

 private:
  ir::ScalarProgram program_;
};

}  // namespace kiln::lower
