// TopK and the ops whose output size only their input's contents tell.
#include <algorithm>

#include "common/ops/rules/rules.h"

namespace kiln::rules {

Status TopK(InferContext& context) {
  SetType(context, In(context, 0).dtype, 0);
  SetType(context, DType::kI64, 1);
  RETURN_IF_ERROR(RequireInteger(context, 1));
  RETURN_IF_ERROR(RequireOneElement(context, 1));
  RETURN_IF_ERROR(RequireRank(context, 0, 1, limits::kRankMax));
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", -1), static_cast<int>(dims.size())));
  Dim& dim = dims[static_cast<size_t>(axis)];
  const std::optional<KnownValues> k = Known(context, 1);
  if (k && k->size() == 1) {
    const Dim wanted = k->front();
    const bool negative = wanted.is_const() && wanted.value() < 0;
    const bool too_large = wanted.is_const() && dim.is_const() && wanted.value() > dim.value();
    if (negative || too_large) {
      return Fail(ErrorCode::kShapeMismatch, "k of TopK is " + std::to_string(wanted.value()) + ", but dim " +
                                                 std::to_string(axis) + " has " + context.symbols.ToString(dim) +
                                                 " elements");
    }
    context.Require(ConstraintKind::kLessEqual, wanted, dim);
    dim = wanted;
  } else {
    dim = DataDependentDim(context, {0, context.symbols.Bounds(dim).max});
  }
  SetDims(context, dims, 0);
  SetDims(context, std::move(dims), 1);
  return {};
}

Status NonZero(InferContext& context) {
  const Dim count = DataDependentDim(context);
  if (!Ranked(context, 0)) {
    SetDims(context, {DataDependentDim(context, {0, limits::kRankMax}), count});
    return {};
  }
  SetDims(context, {Dim::Const(In(context, 0).rank()), count});
  return {};
}

Status NonMaxSuppression(InferContext& context) {
  RETURN_IF_ERROR(RequireSameType(context, 0, 1));
  RETURN_IF_ERROR(RequireSameType(context, 0, 3));
  RETURN_IF_ERROR(RequireSameType(context, 0, 4));
  RETURN_IF_ERROR(RequireRank(context, 0, 3, 3));
  RETURN_IF_ERROR(RequireRank(context, 1, 3, 3));
  if (Ranked(context, 0) && Ranked(context, 1)) {
    const DimList& boxes = InDims(context, 0);
    const DimList& scores = InDims(context, 1);
    RETURN_IF_ERROR(RequireEqual(context, boxes[0], scores[0], "the batches of boxes and scores"));
    RETURN_IF_ERROR(RequireEqual(context, boxes[1], scores[2], "the numbers of boxes and of scores"));
    RETURN_IF_ERROR(RequireEqual(context, boxes[2], Dim::Const(4), "the last dim of boxes and 4"));
  }
  SetDims(context, {DataDependentDim(context), Dim::Const(3)});
  return {};
}

Status Compress(InferContext& context) {
  RETURN_IF_ERROR(RequireType(context, 1, DType::kBool));
  RETURN_IF_ERROR(RequireRank(context, 1, 1, 1));
  if (!context.attributes.Has("axis")) {
    SetDims(context, {DataDependentDim(context)});
    return {};
  }
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", 0), static_cast<int>(dims.size())));
  Dim& dim = dims[static_cast<size_t>(axis)];
  dim = DataDependentDim(context, {0, context.symbols.Bounds(dim).max});
  SetDims(context, std::move(dims));
  return {};
}

Status Unique(InferContext& context) {
  SetType(context, In(context, 0).dtype, 0);
  for (size_t i = 1; i < context.outputs.size(); ++i) SetType(context, DType::kI64, i);
  const Dim count = DataDependentDim(context);
  SetDims(context, {count}, 1);
  SetDims(context, {count}, 3);
  if (!context.attributes.Has("axis")) {
    SetDims(context, {count}, 0);
    SetDims(context, {Ranked(context, 0) ? Product(context.symbols, InDims(context, 0)) : DataDependentDim(context)},
            2);
    return {};
  }
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", 0), static_cast<int>(dims.size())));
  SetDims(context, {dims[static_cast<size_t>(axis)]}, 2);
  dims[static_cast<size_t>(axis)] = count;
  SetDims(context, std::move(dims), 0);
  return {};
}

}  // namespace kiln::rules
