#include "compile-service/lower/kernel_cost.h"

#include "common/tensor/dtype.h"

namespace kiln::lower {
namespace {

bool IsFullSize(PlanBuilder& builder, std::span<const Dim> space, const Operand& operand) {
  for (size_t d = 0; d < operand.strides.size(); ++d)
    if (!builder.graph().IsOne(space[d]) && builder.symbols().ProvenEqual(operand.strides[d], Dim::Const(0)))
      return false;
  return !operand.lookup;
}

}  // namespace

Dim CostOfElements(PlanBuilder& builder, std::span<const Dim> space, int64_t per_element,
                   std::span<const Operand> operands) {
  for (const Operand& operand : operands)
    if (operand.strides.size() == space.size() && IsFullSize(builder, space, operand))
      per_element += kOperationsPerByte * DTypeBytes(operand.dtype);
  return builder.symbols().Mul(builder.graph().Elements({space.begin(), space.end()}), Dim::Const(per_element));
}

Dim CostOfReading(SymbolTable& symbols, Dim elements, DType dtype) {
  return symbols.Mul(elements, Dim::Const(kOperationsPerByte * DTypeBytes(dtype)));
}

}  // namespace kiln::lower
