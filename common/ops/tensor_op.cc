#include "common/ops/tensor_op.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

namespace kiln {
namespace {

constexpr TensorOpInfo kTable[] = {
#define KILN_OP_ROW(plan_check, name, min_in, max_in, min_out, max_out, dtype_rule, effects, family, doc) \
  {TensorOp::k##name,   #name,      min_in, max_in, min_out, max_out, #dtype_rule, OpEffects::k##effects, \
   OpFamily::k##family, plan_check, doc},
#define KILN_TENSOR_OP(value, ...) KILN_OP_ROW(false, __VA_ARGS__)
#define KILN_PLAN_CHECK(value, ...) KILN_OP_ROW(true, __VA_ARGS__)
#include "common/ops/tensor_ops.def"
#undef KILN_TENSOR_OP
#undef KILN_OP_ROW
};
constexpr int kRows = static_cast<int>(std::size(kTable));

constexpr bool IsAscending() {
  for (int i = 1; i < kRows; ++i) {
    if (kTable[i - 1].op >= kTable[i].op) return false;
  }
  return true;
}
static_assert(IsAscending(), "tensor_ops.def is append-only: values ascend");

// Row index by op number, -1 where the number is free.
constexpr size_t kNumberEnd = static_cast<size_t>(kTable[kRows - 1].op) + 1;
constexpr std::array<int16_t, kNumberEnd> kRowOfNumber = [] {
  std::array<int16_t, kNumberEnd> rows{};
  rows.fill(-1);
  for (int i = 0; i < kRows; ++i) rows[static_cast<size_t>(kTable[i].op)] = static_cast<int16_t>(i);
  return rows;
}();

constexpr OpAttributeInfo kAttributes[] = {
#define KILN_OP_ATTRIBUTE(op, name, type, ...) {TensorOp::k##op, name, AttributeType::k##type},
#include "common/ops/op_attributes.def"
#undef KILN_OP_ATTRIBUTE
};
static_assert(std::is_sorted(std::begin(kAttributes), std::end(kAttributes),
                             [](const auto& a, const auto& b) { return a.op < b.op; }),
              "op_attributes.def is grouped by op, in the order of tensor_ops.def");

}  // namespace

const TensorOpInfo& OpInfo(TensorOp op) {
  return kTable[kRowOfNumber[static_cast<size_t>(op)]];
}

std::optional<TensorOp> TensorOpFromNumber(int number) {
  if (number < 0 || static_cast<size_t>(number) >= kNumberEnd) return std::nullopt;
  const int row = kRowOfNumber[static_cast<size_t>(number)];
  return row < 0 ? std::nullopt : std::optional(kTable[row].op);
}

std::optional<TensorOp> TensorOpFromName(std::string_view name) {
  static const auto* by_name = [] {
    auto* map = new std::unordered_map<std::string_view, TensorOp>;
    for (const TensorOpInfo& row : kTable) map->emplace(row.name, row.op);
    return map;
  }();
  const auto found = by_name->find(name);
  return found == by_name->end() ? std::nullopt : std::optional(found->second);
}

std::span<const OpAttributeInfo> OpAttributes(TensorOp op) {
  const auto first = std::lower_bound(std::begin(kAttributes), std::end(kAttributes), op,
                                      [](const OpAttributeInfo& row, TensorOp wanted) { return row.op < wanted; });
  const auto last =
      std::find_if(first, std::end(kAttributes), [op](const OpAttributeInfo& row) { return row.op != op; });
  return {first, last};
}

const OpAttributeInfo* FindOpAttribute(TensorOp op, std::string_view name) {
  for (const OpAttributeInfo& row : OpAttributes(op)) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

int TensorOpCount() {
  return kRows;
}
const TensorOpInfo& TensorOpRow(int index) {
  return kTable[index];
}

Digest TensorOpTablePrefix(int rows) {
  FieldHasher hasher("kiln.op_table.v1");
  rows = std::clamp(rows, 0, kRows);
  hasher.U32(static_cast<uint32_t>(rows));
  for (int i = 0; i < rows; ++i) {
    const TensorOpInfo& row = kTable[i];
    hasher.U32(static_cast<uint32_t>(row.op)).Text(row.name);
    hasher.U32(static_cast<uint32_t>(row.min_inputs)).U32(static_cast<uint32_t>(row.max_inputs));
    hasher.U32(static_cast<uint32_t>(row.min_outputs)).U32(static_cast<uint32_t>(row.max_outputs));
    hasher.Text(row.dtype_rule).U8(static_cast<uint8_t>(row.effects)).U8(static_cast<uint8_t>(row.family));
  }
  return hasher.Finish();
}

}  // namespace kiln
