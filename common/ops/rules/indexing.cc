// Gather, scatter and one-hot.
#include <algorithm>

#include "common/base/checked_math.h"
#include "common/ops/rules/rules.h"

namespace kiln::rules {
namespace {

Status SameDims(InferContext& context) {
  context.outputs[0].dims = In(context, 0).dims;
  return {};
}

// Contents of known entries at known indices: Shape → Gather chains.
void FollowGather(InferContext& context) {
  if (InDims(context, 0).size() != 1 || !FollowKnown(context, *context.outputs[0].dims)) return;
  const std::optional<std::vector<int64_t>> indices = KnownInts(context, 1);
  if (!indices) return;
  const std::optional<KnownValues> values = Known(context, 0);
  if (!values) return;
  const int64_t size = static_cast<int64_t>(values->size());
  KnownValues taken;
  for (const int64_t index : *indices) {
    if (index < -size || index >= size) return;  // the kernel reports it, if the node ever runs
    taken.push_back((*values)[static_cast<size_t>(index < 0 ? index + size : index)]);
  }
  SetKnown(context, std::move(taken));
}

// Indices that are constants must lie in the dim they select from. A call whose result is empty reads none of them.
void RequireGathered(InferContext& context, int axis) {
  if (context.required == nullptr) return;
  const std::optional<std::vector<int64_t>> indices = KnownInts(context, 1);
  if (!indices || indices->empty()) return;
  const auto [least, most] = std::ranges::minmax(*indices);
  const std::optional<int64_t> behind = CheckedAdd(most, 1), before = CheckedSub(0, least);
  if (!behind || !before) return;
  Dim others = Dim::Const(1);
  const DimList& data = InDims(context, 0);
  for (size_t d = 0; d < data.size(); ++d)
    if (static_cast<int>(d) != axis) others = context.symbols.Mul(others, data[d]);
  if (others == Dim::Const(0)) return;
  const Dim any = context.symbols.Min(others, Dim::Const(1));
  const Dim needed = context.symbols.Mul(any, Dim::Const(std::max(*behind, *before)));
  context.Require(ConstraintKind::kLessEqual, needed, data[static_cast<size_t>(axis)]);
}

}  // namespace

Status Gather(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  RETURN_IF_ERROR(RequireRank(context, 0, 1, limits::kRankMax));
  if (!Ranked(context, 0) || !Ranked(context, 1)) return {};
  const DimList& data = InDims(context, 0);
  const DimList& indices = InDims(context, 1);
  ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", 0), static_cast<int>(data.size())));
  DimList dims(data.begin(), data.begin() + axis);
  dims.insert(dims.end(), indices.begin(), indices.end());
  dims.insert(dims.end(), data.begin() + axis + 1, data.end());
  SetDims(context, std::move(dims));
  RequireGathered(context, axis);
  FollowGather(context);
  return {};
}

Status GatherElements(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  context.outputs[0].dims = In(context, 1).dims;
  if (!Ranked(context, 0)) return {};
  const int rank = In(context, 0).rank();
  RETURN_IF_ERROR(RequireRank(context, 0, 1, limits::kRankMax));
  RETURN_IF_ERROR(RequireRank(context, 1, rank, rank));
  RETURN_IF_ERROR(Axis(context.attributes.Int("axis", 0), rank));
  return {};
}

Status GatherND(InferContext& context) {
  RETURN_IF_ERROR(RequireType(context, 1, DType::kI64));
  if (!Ranked(context, 0) || !Ranked(context, 1)) return {};
  const DimList& data = InDims(context, 0);
  const DimList& indices = InDims(context, 1);
  const int64_t batch = context.attributes.Int("batch_dims", 0);
  const int64_t smaller = static_cast<int64_t>(std::min(data.size(), indices.size()));
  if (batch < 0 || batch >= smaller) {
    return Fail(ErrorCode::kShapeMismatch,
                "batch_dims " + std::to_string(batch) + " of GatherND is not below the ranks of its inputs");
  }
  for (size_t d = 0; d < static_cast<size_t>(batch); ++d) {
    RETURN_IF_ERROR(RequireEqual(context, data[d], indices[d], "batch dims " + std::to_string(d) + " of GatherND"));
  }
  if (!indices.back().is_const()) return {};
  const int64_t tuple = indices.back().value();
  if (tuple < 1 || tuple > static_cast<int64_t>(data.size()) - batch) {
    return Fail(ErrorCode::kShapeMismatch, "index tuples of GatherND have " + std::to_string(tuple) +
                                               " entries; the input has rank " + std::to_string(data.size()));
  }
  DimList dims(indices.begin(), indices.end() - 1);
  dims.insert(dims.end(), data.begin() + batch + tuple, data.end());
  SetDims(context, std::move(dims));
  return {};
}

Status ScatterElements(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  RETURN_IF_ERROR(RequireSameType(context, 0, 2));
  if (Ranked(context, 0)) {
    const int rank = In(context, 0).rank();
    RETURN_IF_ERROR(RequireRank(context, 0, 1, limits::kRankMax));
    RETURN_IF_ERROR(RequireRank(context, 1, rank, rank));
    RETURN_IF_ERROR(Axis(context.attributes.Int("axis", 0), rank));
  }
  if (Ranked(context, 1) && Ranked(context, 2)) {
    const int rank = In(context, 1).rank();
    RETURN_IF_ERROR(RequireRank(context, 2, rank, rank));
    for (int d = 0; d < rank; ++d) {
      const size_t at = static_cast<size_t>(d);
      RETURN_IF_ERROR(RequireEqual(context, InDims(context, 1)[at], InDims(context, 2)[at],
                                   "dims " + std::to_string(d) + " of indices and updates"));
    }
  }
  return SameDims(context);
}

Status ScatterND(InferContext& context) {
  RETURN_IF_ERROR(RequireType(context, 1, DType::kI64));
  RETURN_IF_ERROR(RequireSameType(context, 0, 2));
  if (Ranked(context, 0) && Ranked(context, 1)) {
    RETURN_IF_ERROR(RequireRank(context, 1, 1, limits::kRankMax));
    const DimList& data = InDims(context, 0);
    const DimList& indices = InDims(context, 1);
    if (indices.back().is_const()) {
      const int64_t tuple = indices.back().value();
      if (tuple < 1 || tuple > static_cast<int64_t>(data.size())) {
        return Fail(ErrorCode::kShapeMismatch, "index tuples of ScatterND have " + std::to_string(tuple) +
                                                   " entries; the input has rank " + std::to_string(data.size()));
      }
      DimList wanted(indices.begin(), indices.end() - 1);
      wanted.insert(wanted.end(), data.begin() + tuple, data.end());
      const int rank = static_cast<int>(wanted.size());
      RETURN_IF_ERROR(RequireRank(context, 2, rank, rank));
      for (size_t d = 0; Ranked(context, 2) && d < wanted.size(); ++d) {
        RETURN_IF_ERROR(
            RequireEqual(context, wanted[d], InDims(context, 2)[d],
                         "dim " + std::to_string(d) + " of the updates and what indices and input ask for"));
      }
    }
  }
  return SameDims(context);
}

Status OneHot(InferContext& context) {
  SetType(context, In(context, 2).dtype);
  RETURN_IF_ERROR(RequireOneElement(context, 1));
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", -1), static_cast<int>(dims.size()) + 1));
  Dim depth;
  const std::optional<KnownValues> known = Known(context, 1);
  const std::optional<std::vector<double>> floats = KnownFloats(context, 1);
  if (known && known->size() == 1) {
    depth = known->front();
  } else if (floats && floats->size() == 1 && floats->front() >= 0 && floats->front() < 1e15) {
    depth = Dim::Const(static_cast<int64_t>(floats->front()));
  } else {
    depth = DataDependentDim(context);
  }
  if (depth.is_const() && depth.value() < 0) {
    return Fail(ErrorCode::kInvalidArgument, "the depth of OneHot is negative: " + std::to_string(depth.value()));
  }
  dims.insert(dims.begin() + axis, depth);
  SetDims(context, std::move(dims));
  return {};
}

// The data's dims alone: a plan may ask about a tensor that is made by then.
Status CheckIndices(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 0));
  SetDims(context, {});
  if (!Ranked(context, 1)) return {};
  const int rank = In(context, 1).rank();
  ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", 0), rank));
  if (context.attributes.Int("tuple", 0) == 0 || !Ranked(context, 0)) return {};
  RETURN_IF_ERROR(RequireRank(context, 0, 1, limits::kRankMax));
  const Dim entries = InDims(context, 0).back();
  if (entries.is_const() && entries.value() > rank - axis) {
    return Fail(ErrorCode::kShapeMismatch, "index tuples have " + std::to_string(entries.value()) +
                                               " entries; the data has " + std::to_string(rank - axis) +
                                               " axes from axis " + std::to_string(axis) + " on");
  }
  return {};
}

}  // namespace kiln::rules
