// Element-wise ops in the scalar language: the expressions that are more than one operation.
#pragma once

#include <span>

#include "compile-service/ir/graph.h"
#include "compile-service/lower/scalar_program.h"

namespace kiln::lower {

// A node, and where its expression is written.
struct NodeScalars {
  ScalarBuilder& scalars;
  const ir::Graph& graph;
  const ir::GraphNode& node;
  std::span<const int32_t> operands;  // scalar node of each input, -1 when absent
  DType type;                         // what kernels compute with for input 0

  int32_t x() const { return operands[0]; }
  int32_t y() const { return operands[1]; }
  bool Has(size_t input) const { return input < operands.size() && operands[input] >= 0; }

  int32_t Op(ir::ScalarOp op, int32_t a, int32_t b = -1, int32_t c = -1) const { return scalars.Op(op, type, a, b, c); }
  int32_t Bool(ir::ScalarOp op, int32_t a, int32_t b = -1) const { return scalars.Op(op, DType::kBool, a, b); }
  int32_t Less(int32_t a, int32_t b) const { return Bool(ir::ScalarOp::kLess, a, b); }
  int32_t Select(int32_t condition, int32_t yes, int32_t no) const {
    return Op(ir::ScalarOp::kSelect, condition, yes, no);
  }
  int32_t Number(double value) const { return scalars.Number(type, value); }
  int32_t Attribute(const char* name, double fallback) const;  // of floats
};

// One per op; each returns the scalar node of the result.
namespace expressions {

// Functions of floats, with what their attributes say.
int32_t Reciprocal(const NodeScalars& n);
int32_t LeakyRelu(const NodeScalars& n);
int32_t ThresholdedRelu(const NodeScalars& n);
int32_t Elu(const NodeScalars& n);
int32_t Celu(const NodeScalars& n);
int32_t Selu(const NodeScalars& n);
int32_t Gelu(const NodeScalars& n);
int32_t HardSigmoid(const NodeScalars& n);
int32_t HardSwish(const NodeScalars& n);
int32_t Mish(const NodeScalars& n);
int32_t Softplus(const NodeScalars& n);
int32_t Softsign(const NodeScalars& n);
int32_t Shrink(const NodeScalars& n);
int32_t IsInf(const NodeScalars& n);
int32_t Pow(const NodeScalars& n);
int32_t PRelu(const NodeScalars& n);
int32_t Mean(const NodeScalars& n);

// Of any type that kernels compute with.
int32_t Relu(const NodeScalars& n);
int32_t Sign(const NodeScalars& n);
int32_t Clip(const NodeScalars& n);
int32_t Mod(const NodeScalars& n);
int32_t Xor(const NodeScalars& n);
int32_t Cast(const NodeScalars& n);
int32_t Where(const NodeScalars& n);

// Between floats and bytes.
int32_t QuantizeLinear(const NodeScalars& n);
int32_t DequantizeLinear(const NodeScalars& n);

}  // namespace expressions
}  // namespace kiln::lower
