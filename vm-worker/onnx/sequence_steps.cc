#include "vm-worker/onnx/sequence_steps.h"

#include <numeric>

namespace kiln::onnx {

std::vector<int64_t> ToFront(int rank, int64_t axis) {
  std::vector<int64_t> perm = {axis};
  for (int64_t d = 0; d < rank; ++d) {
    if (d != axis) perm.push_back(d);
  }
  return perm;
}

std::vector<int64_t> FromFront(int rank, int64_t axis) {
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 1);
  for (size_t d = static_cast<size_t>(axis) + 1; d < perm.size(); ++d) perm[d] = static_cast<int64_t>(d);
  perm[static_cast<size_t>(axis)] = 0;
  return perm;
}

ValueId SequenceSteps::NotEmpty(ValueId value, ValueId counted) {
  if (value == kNoValue) return value;
  if (counted == kNoValue) counted = value;
  const std::vector<Dim> dims = DimsOf(counted);
  if (!dims.empty() && b_.symbols().Bounds(dims.front()).min >= 1) return value;
  const ValueId rows = Rows(value, ZeroIfAny(counted), Ints({kToTheEnd}));
  // All of it, which the Slice's shape does not tell.
  return ReshapeTo(rows, Vector(DimsOf(value)));
}

ValueId SequenceSteps::Offsets(ValueId sizes) {
  Attributes exclusive;
  exclusive.Set("exclusive", int64_t{1});
  return Do(TensorOp::kCumSum, {sizes, b_.EmitInt(0)}, std::move(exclusive));
}

Result<ValueId> SequenceSteps::Finish(ValueId value) {
  ASSIGN_OR_RETURN(const ValueList values, Done({value}));
  return values[0];
}

}  // namespace kiln::onnx
