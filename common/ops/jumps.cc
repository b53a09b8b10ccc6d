#include "common/ops/jumps.h"

#include <algorithm>
#include <iterator>

namespace kiln {
namespace {

struct Row {
  TensorOp op;
  OpJumps jumps;
};
constexpr Row kRows[] = {
#define KILN_OP_JUMPS(op, jumps) {TensorOp::k##op, OpJumps::k##jumps},
#include "common/ops/op_jumps.def"
#undef KILN_OP_JUMPS
};

}  // namespace

OpJumps JumpsOf(TensorOp op) {
  if (OpInfo(op).effects == OpEffects::kDecision) return OpJumps::kEverywhere;
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [op](const Row& other) { return other.op == op; });
  return row == std::end(kRows) ? OpJumps::kNowhere : row->jumps;
}

}  // namespace kiln
