// Element-wise nodes in the scalar language of kernel specs.
#pragma once

#include <optional>
#include <span>

#include "compile-service/ir/graph.h"
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

  // Appends `node`; operands[i] is the scalar node of input i, converted already to the input's dtype, or -1 when
  // absent. Precondition: IsScalarNode.
  int32_t Node(const ir::Graph& graph, const ir::GraphNode& node, std::span<const int32_t> operands);

 private:
  int32_t F32(const ir::Graph& graph, const ir::GraphNode& node, std::span<const int32_t> operands);
  int32_t Activation(const ir::GraphNode& node, int32_t x);
  int32_t ExpMinusOne(int32_t x);
  int32_t LogOfOneAnd(int32_t t);
  int32_t Quantization(const ir::Graph& graph, const ir::GraphNode& node, std::span<const int32_t> operands);
  int32_t Power(const ir::Graph& graph, const ir::GraphNode& node, std::span<const int32_t> operands);
  int32_t Division(const ir::GraphNode& node, DType type, int32_t x, int32_t y);
  int32_t Any(const ir::Graph& graph, const ir::GraphNode& node, DType type, std::span<const int32_t> operands);

  ir::ScalarProgram program_;
};

// Whether a kernel can compute the node element by element: op and dtypes both.
bool IsScalarNode(const ir::Graph& graph, const ir::GraphNode& node);
// Whether a step before the kernel must look for zeros in the divisor, which then is memory.
bool NeedsDivisorCheck(const ir::Graph& graph, const ir::GraphNode& node);
// Dtypes that kernels read and write.
bool IsKernelDType(DType dtype);
bool IsByte(DType dtype);  // u8, i8
// What a kernel computes with for values of a kernel dtype: i32 for bytes, f32 for halves, else the dtype itself.
DType ComputeType(DType dtype);
// The same of any dtype, where sums and products that wrap are right: narrow integers in i32, u32 and u64 in i64.
std::optional<DType> WideType(DType dtype);

}  // namespace kiln::lower
