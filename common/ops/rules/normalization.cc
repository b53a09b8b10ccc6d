// Softmax and the normalisations: the shape of the input, and checks of the parameters.
#include "common/ops/rules/rules.h"

namespace kiln::rules {
namespace {

Status Same(InferContext& context) {
  context.outputs[0].dims = In(context, 0).dims;
  return {};
}

Status SameWithAxis(InferContext& context, int64_t fallback) {
  if (Ranked(context, 0)) RETURN_IF_ERROR(Axis(context.attributes.Int("axis", fallback), In(context, 0).rank()));
  return Same(context);
}

// Per-channel parameters: inputs `first` … `last` are vectors as long as dim 1 of the input.
Status PerChannel(InferContext& context, size_t first, size_t last) {
  for (size_t i = first; i <= last; ++i) {
    RETURN_IF_ERROR(RequireRank(context, i, 1, 1));
    if (!Ranked(context, i) || !Ranked(context, 0)) continue;
    const Dim channels = In(context, 0).rank() < 2 ? Dim::Const(1) : InDims(context, 0)[1];
    RETURN_IF_ERROR(RequireEqual(context, channels, InDims(context, i)[0],
                                 "the channels of the input and the length of input " + std::to_string(i)));
  }
  return Same(context);
}

// Scale and bias broadcast to the dims from `axis` on.
Status CheckScale(InferContext& context, size_t input) {
  if (!Ranked(context, 0) || !Ranked(context, input)) return {};
  return RequireBroadcastTo(context, InDims(context, 0), InDims(context, input), "input " + std::to_string(input));
}

}  // namespace

Status Softmax(InferContext& context) {
  return SameWithAxis(context, -1);
}
Status LogSoftmax(InferContext& context) {
  return SameWithAxis(context, -1);
}
Status Hardmax(InferContext& context) {
  return SameWithAxis(context, -1);
}
Status LpNormalization(InferContext& context) {
  const int64_t p = context.attributes.Int("p", 2);
  if (p != 1 && p != 2)
    return Fail(ErrorCode::kInvalidArgument,
                "attribute `p` of LpNormalization is " + std::to_string(p) + ", not 1 or 2");
  return SameWithAxis(context, -1);
}

Status BatchNormalization(InferContext& context) {
  RETURN_IF_ERROR(RequireRank(context, 0, 1, limits::kRankMax));
  return PerChannel(context, 1, 4);
}

Status InstanceNormalization(InferContext& context) {
  RETURN_IF_ERROR(RequireRank(context, 0, 2, limits::kRankMax));
  return PerChannel(context, 1, 2);
}

Status GroupNormalization(InferContext& context) {
  RETURN_IF_ERROR(RequireRank(context, 0, 2, limits::kRankMax));
  const int64_t groups = context.attributes.Int("num_groups", 0);
  if (groups < 1) return Fail(ErrorCode::kInvalidArgument, "attribute `num_groups` must be at least 1");
  if (Ranked(context, 0)) {
    const Dim channels = InDims(context, 0)[1];
    if (channels.is_const() && channels.value() % groups != 0) {
      return Fail(ErrorCode::kShapeMismatch, std::to_string(channels.value()) + " channels do not divide into " +
                                                 std::to_string(groups) + " groups");
    }
    RequireMultiple(context, channels, groups);
  }
  return PerChannel(context, 1, 2);
}

Status LayerNormalization(InferContext& context) {
  RETURN_IF_ERROR(SameWithAxis(context, -1));
  RETURN_IF_ERROR(CheckScale(context, 1));
  RETURN_IF_ERROR(CheckScale(context, 2));
  const bool statistics_in_float = context.attributes.Int("stash_type", 1) == 1;
  for (size_t i = 1; i < context.outputs.size(); ++i) {
    SetType(context, statistics_in_float ? DType::kF32 : In(context, 0).dtype, i);
    if (!Ranked(context, 0)) continue;
    DimList dims = InDims(context, 0);
    ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", -1), static_cast<int>(dims.size())));
    for (size_t d = static_cast<size_t>(axis); d < dims.size(); ++d) dims[d] = Dim::Const(1);
    SetDims(context, std::move(dims), i);
  }
  return {};
}

Status RMSNormalization(InferContext& context) {
  RETURN_IF_ERROR(CheckScale(context, 1));
  return SameWithAxis(context, -1);
}

Status LRN(InferContext& context) {
  RETURN_IF_ERROR(RequireRank(context, 0, 3, limits::kRankMax));
  if (context.attributes.Int("size", 0) < 1) {
    return Fail(ErrorCode::kInvalidArgument, "attribute `size` of LRN must be at least 1");
  }
  return Same(context);
}

Status MeanVarianceNormalization(InferContext& context) {
  if (Ranked(context, 0)) {
    const std::span<const int64_t> axes = context.attributes.Ints("axes");
    if (!axes.empty()) RETURN_IF_ERROR(AxisList(axes, In(context, 0).rank()));
  }
  return Same(context);
}

}  // namespace kiln::rules
