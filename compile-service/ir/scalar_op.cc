#include "compile-service/ir/scalar_op.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>

namespace kiln::ir {
namespace {

constexpr struct {
  ScalarOp op;
  ScalarOpInfo info;
} kTable[] = {
#define KILN_SCALAR_OP(value, name, operands, format, doc) \
  {ScalarOp::k##name, {#name, operands, ScalarFormat::k##format}},
#include "compile-service/ir/scalar_ops.def"
#undef KILN_SCALAR_OP
};
static_assert(std::ranges::adjacent_find(kTable, std::ranges::greater_equal(),
                                         [](const auto& row) { return row.op; }) == std::end(kTable),
              "scalar_ops.def is append-only: values ascend");

// By number; no name where the number is free.
constexpr auto kByNumber = [] {
  std::array<ScalarOpInfo, static_cast<size_t>(std::rbegin(kTable)->op) + 1> rows{};
  for (const auto& row : kTable) rows[static_cast<size_t>(row.op)] = row.info;
  return rows;
}();

}  // namespace

const ScalarOpInfo* FindScalarOp(ScalarOp op) {
  const auto number = static_cast<size_t>(op);
  return number < kByNumber.size() && !kByNumber[number].name.empty() ? &kByNumber[number] : nullptr;
}

std::string_view ScalarOpName(ScalarOp op) {
  const ScalarOpInfo* info = FindScalarOp(op);
  return info == nullptr ? "?" : info->name;
}

bool IsLeaf(ScalarOp op) {
  const ScalarOpInfo* info = FindScalarOp(op);
  return info != nullptr && info->operands == 0 && info->format != ScalarFormat::kConstant;
}

bool IsFunction(ScalarOp op) {
  const ScalarOpInfo* info = FindScalarOp(op);
  return info != nullptr && info->format == ScalarFormat::kFunction;
}

}  // namespace kiln::ir
