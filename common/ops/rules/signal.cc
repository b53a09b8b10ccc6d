// Shape rules of DFT, STFT, RoiAlign and MaxRoiPool.
#include "common/ops/rules/rules.h"

namespace kiln::rules {
namespace {

// The value of an integer of one element: a constant, an expression, or a size that only running tells.
Dim ValueOf(InferContext& context, size_t i) {
  const std::optional<KnownValues> known = Known(context, i);
  return known && known->size() == 1 ? known->front() : DataDependentDim(context);
}

// The last dim holds 1 part of a real or 2 of a complex number; `parts` is 0 where either will do.
Status RequireParts(const InferContext& context, int64_t parts) {
  const Dim last = InDims(context, 0).back();
  if (!last.is_const()) {
    if (parts != 0) context.Require(ConstraintKind::kEqual, last, Dim::Const(parts));
    return {};
  }
  if (parts == 0 ? last.value() == 1 || last.value() == 2 : last.value() == parts) return {};
  return Fail(ErrorCode::kShapeMismatch, "the last dim of input 0 is " + std::to_string(last.value()) +
                                             "; it is 1 for real and 2 for complex numbers" +
                                             (parts == 1   ? ", and this `onesided` form takes real ones"
                                              : parts == 2 ? ", and this `onesided` form takes complex ones"
                                                           : ""));
}

Status RequirePositive(Dim value, const std::string& what) {
  if (!value.is_const() || value.value() >= 1) return {};
  return Fail(ErrorCode::kShapeMismatch, what + " is " + std::to_string(value.value()) + "; it takes 1 or more");
}

// Bins of a spectrum of which only one half is kept.
Dim HalfOf(InferContext& context, Dim length) {
  return context.symbols.Add(context.symbols.FloorDiv(length, Dim::Const(2)), Dim::Const(1));
}

// What DFT makes of the size of its axis.
Result<Dim> TransformedSize(InferContext& context, Dim size, bool onesided, bool inverse) {
  SymbolTable& symbols = context.symbols;
  Dim length = size;
  if (Has(context, 1)) {
    length = ValueOf(context, 1);
  } else if (onesided && inverse) {
    length = symbols.Mul(symbols.Sub(size, Dim::Const(1)), Dim::Const(2));
  }
  RETURN_IF_ERROR(RequirePositive(length, "the length of DFT"));
  return onesided && !inverse ? HalfOf(context, length) : length;
}

}  // namespace

// x [..., size of the axis, ..., 1 or 2]; length; axis.
Status DFT(InferContext& context) {
  RETURN_IF_ERROR(RequireFloat(context, 0));
  for (size_t i = 1; i < 3; ++i) {
    RETURN_IF_ERROR(RequireInteger(context, i));
    RETURN_IF_ERROR(RequireOneElement(context, i));
  }
  const bool onesided = context.attributes.Int("onesided", 0) != 0;
  const bool inverse = context.attributes.Int("inverse", 0) != 0;
  RETURN_IF_ERROR(RequireRank(context, 0, 2, limits::kRankMax));
  if (!Ranked(context, 0)) return {};
  RETURN_IF_ERROR(RequireParts(context, !onesided ? 0 : inverse ? 2 : 1));
  DimList dims = InDims(context, 0);
  const int rank = static_cast<int>(dims.size());
  dims.back() = Dim::Const(onesided && inverse ? 1 : 2);
  const auto axis = Has(context, 2) ? KnownInts(context, 2) : std::optional(std::vector<int64_t>{-2});
  if (axis && axis->size() == 1) {
    ASSIGN_OR_RETURN(const int at, Axis(axis->front(), rank));
    if (at == rank - 1) {
      return Fail(ErrorCode::kInvalidArgument, "axis " + std::to_string(axis->front()) +
                                                   " of DFT is the last dim, which holds the parts of a number");
    }
    Dim& size = dims[static_cast<size_t>(at)];
    ASSIGN_OR_RETURN(size, TransformedSize(context, size, onesided, inverse));
  } else if (onesided || Has(context, 1)) {
    for (int d = 0; d < rank - 1; ++d) dims[static_cast<size_t>(d)] = DataDependentDim(context);
  }
  SetDims(context, std::move(dims));
  return {};
}

// signal [batch, length, 1 or 2], step, window [frame], frame. A signal shorter than a frame has no frames.
Status STFT(InferContext& context) {
  RETURN_IF_ERROR(RequireFloat(context, 0));
  RETURN_IF_ERROR(RequireSameType(context, 0, 2));
  RETURN_IF_ERROR(RequireRank(context, 0, 3, 3));
  RETURN_IF_ERROR(RequireRank(context, 2, 1, 1));
  for (const size_t i : {size_t{1}, size_t{3}}) {
    RETURN_IF_ERROR(RequireInteger(context, i));
    RETURN_IF_ERROR(RequireOneElement(context, i));
  }
  if (!Ranked(context, 0)) return {};
  const bool onesided = context.attributes.Int("onesided", 1) != 0;
  RETURN_IF_ERROR(RequireParts(context, onesided ? 1 : 0));
  SymbolTable& symbols = context.symbols;
  const DimList& signal = InDims(context, 0);
  Dim frame = signal[1];
  if (Has(context, 3)) frame = ValueOf(context, 3);
  if (Ranked(context, 2)) {
    const Dim window = InDims(context, 2)[0];
    if (Has(context, 3)) RETURN_IF_ERROR(RequireEqual(context, window, frame, "the window and the length of a frame"));
    frame = Has(context, 3) ? MoreKnown(frame, window) : window;
  } else if (Has(context, 2) && !Has(context, 3)) {
    frame = DataDependentDim(context, {1, Interval::kNoBound});
  }
  const Dim step = ValueOf(context, 1);
  RETURN_IF_ERROR(RequirePositive(frame, "the length of a frame of STFT"));
  RETURN_IF_ERROR(RequirePositive(step, "the step of STFT"));
  Dim frames;
  if (symbols.Bounds(step).min >= 1) {
    const Dim steps = symbols.FloorDiv(symbols.Sub(signal[1], frame), step);
    frames = AtLeast(context, symbols.Add(steps, Dim::Const(1)), 0);
  } else {
    frames = DataDependentDim(context);
  }
  SetDims(context, {signal[0], frames, onesided ? HalfOf(context, frame) : frame, Dim::Const(2)});
  return {};
}

// x [N, C, H, W], boxes [M, 4], batch indices [M].
Status RoiAlign(InferContext& context) {
  RETURN_IF_ERROR(RequireFloat(context, 0));
  RETURN_IF_ERROR(RequireSameType(context, 0, 1));
  RETURN_IF_ERROR(RequireType(context, 2, DType::kI64));
  RETURN_IF_ERROR(RequireRank(context, 0, 4, 4));
  RETURN_IF_ERROR(RequireRank(context, 1, 2, 2));
  RETURN_IF_ERROR(RequireRank(context, 2, 1, 1));
  const Attributes& attributes = context.attributes;
  const Dim height = Dim::Const(attributes.Int("output_height", 1));
  const Dim width = Dim::Const(attributes.Int("output_width", 1));
  RETURN_IF_ERROR(RequirePositive(height, "attribute `output_height`"));
  RETURN_IF_ERROR(RequirePositive(width, "attribute `output_width`"));
  if (!Ranked(context, 0) || !Ranked(context, 1)) return {};
  const DimList& boxes = InDims(context, 1);
  RETURN_IF_ERROR(RequireEqual(context, boxes[1], Dim::Const(4), "dim 1 of the boxes and their four coordinates"));
  Dim count = boxes[0];
  if (Ranked(context, 2)) {
    RETURN_IF_ERROR(RequireEqual(context, count, InDims(context, 2)[0], "the boxes and their batch indices"));
    count = MoreKnown(count, InDims(context, 2)[0]);
  }
  SetDims(context, {count, InDims(context, 0)[1], height, width});
  return {};
}

// x [N, C, H, W], regions [M, 5].
Status MaxRoiPool(InferContext& context) {
  RETURN_IF_ERROR(RequireFloat(context, 0));
  RETURN_IF_ERROR(RequireSameType(context, 0, 1));
  RETURN_IF_ERROR(RequireRank(context, 0, 4, 4));
  RETURN_IF_ERROR(RequireRank(context, 1, 2, 2));
  const std::span<const int64_t> pooled = context.attributes.Ints("pooled_shape");
  if (pooled.size() != 2)
    return Fail(ErrorCode::kInvalidArgument, "attribute `pooled_shape` has " + std::to_string(pooled.size()) +
                                                 " entries; it takes a height and a width");
  const Dim height = Dim::Const(pooled[0]), width = Dim::Const(pooled[1]);
  RETURN_IF_ERROR(RequirePositive(height, "the height in `pooled_shape`"));
  RETURN_IF_ERROR(RequirePositive(width, "the width in `pooled_shape`"));
  if (!Ranked(context, 0) || !Ranked(context, 1)) return {};
  const DimList& regions = InDims(context, 1);
  RETURN_IF_ERROR(
      RequireEqual(context, regions[1], Dim::Const(5), "dim 1 of the regions and their batch index and coordinates"));
  SetDims(context, {regions[0], InDims(context, 0)[1], height, width});
  return {};
}

}  // namespace kiln::rules
