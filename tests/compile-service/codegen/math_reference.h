// Elementary functions of generated code beside the C library in double: what the sampling and the exhaustive test
// share.
#pragma once

#include <bit>
#include <cmath>
#include <limits>

#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "tests/support/executable_memory.h"
#include "tests/support/spec_builder.h"

namespace kiln::testing {

inline constexpr double kUlpBound = 2.0;

struct ElementaryFunction {
  ir::ScalarOp op;
  const char* name;
  double (*reference)(double);
};
inline double Sigmoid(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
inline const ElementaryFunction kFunctions[] = {
    {ir::ScalarOp::kExp, "exp", std::exp},           {ir::ScalarOp::kLog, "log", std::log},
    {ir::ScalarOp::kTanh, "tanh", std::tanh},        {ir::ScalarOp::kErf, "erf", std::erf},
    {ir::ScalarOp::kSigmoid, "sigmoid", Sigmoid},    {ir::ScalarOp::kSin, "sin", std::sin},
    {ir::ScalarOp::kCos, "cos", std::cos},           {ir::ScalarOp::kSqrt, "sqrt", std::sqrt},
    {ir::ScalarOp::kFloor, "floor", std::floor},     {ir::ScalarOp::kCeil, "ceil", std::ceil},
    {ir::ScalarOp::kRound, "round", std::nearbyint},
};

// Distance in units in the last place of the f32 nearest to `expected`; 0 when both are NaN or equal, signs of zero
// included.
inline double UlpError(float got, double expected) {
  const float rounded = static_cast<float>(expected);
  if (std::isnan(rounded)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(rounded) || rounded == 0 || std::isnan(got))
    return std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(rounded) ? 0
           : std::isnan(got) || rounded == 0                     ? (std::fabs(got) <= 0x1p-149f ? 1 : INFINITY)
           : std::fabs(got) == std::numeric_limits<float>::max() ? 1
                                                                 : INFINITY;
  const int exponent = std::max(std::ilogb(rounded), -126);
  return std::fabs(static_cast<double>(got) - expected) / std::ldexp(1.0, exponent - 23);
}

// A flat kernel: pointers of the operands, then of the result; dims argument 0 is the number of elements.
inline ir::KernelSpec Apply(ir::ScalarOp op, int operands) {
  ir::LoopNestSpec nest;
  nest.inner = ir::SpecInt::Argument(0);
  ProgramBuilder p;
  int32_t loads[2] = {-1, -1};
  for (int i = 0; i < operands; ++i) {
    nest.accesses.push_back({i, DType::kF32, Consts({1})});
    loads[i] = p.Load(i);
  }
  nest.accesses.push_back({operands, DType::kF32, Consts({1})});
  const int32_t result = p.Op(op, loads[0], loads[1]);
  nest.body = p.Take();
  nest.stages = {StoreStage(ir::Stage::Domain::kInner, {{operands, result}})};
  return {nest, operands + 1, 1};
}

}  // namespace kiln::testing
