// Ops that move elements: Concat, Tile, Pad, Resize and the like.
#include <algorithm>
#include <cmath>

#include "common/base/checked_math.h"
#include "common/ops/kernels/kernel.h"
#include "common/ops/resize_scales.h"
#include "common/ops/rules/rules.h"

namespace kiln::rules {

Status Concat(InferContext& context) {
  size_t first = context.inputs.size();
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    if (!Has(context, i)) return Fail(ErrorCode::kInvalidArgument, "input " + std::to_string(i) + " is missing");
    RETURN_IF_ERROR(RequireSameType(context, 0, i));
    if (Ranked(context, i) && first == context.inputs.size()) first = i;
  }
  if (first == context.inputs.size()) return {};
  DimList dims = InDims(context, first);
  ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", 0), static_cast<int>(dims.size())));
  Dim total = Dim::Const(0);
  bool total_known = true;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    if (!Ranked(context, i)) {
      total_known = false;
      continue;
    }
    const DimList& in = InDims(context, i);
    RETURN_IF_ERROR(RequireRank(context, i, static_cast<int>(dims.size()), static_cast<int>(dims.size())));
    for (size_t d = 0; d < in.size(); ++d) {
      if (static_cast<int>(d) == axis) continue;
      RETURN_IF_ERROR(RequireEqual(context, dims[d], in[d],
                                   "dim " + std::to_string(d) + " of inputs " + std::to_string(first) + " and " +
                                       std::to_string(i) + " of Concat along axis " + std::to_string(axis)));
      dims[d] = MoreKnown(dims[d], in[d]);
    }
    total = context.symbols.Add(total, in[static_cast<size_t>(axis)]);
  }
  dims[static_cast<size_t>(axis)] = total_known ? total : context.symbols.FreshSymbol();
  SetDims(context, std::move(dims));
  if (context.outputs[0].rank() != 1 || !FollowKnown(context, *context.outputs[0].dims)) return {};
  KnownValues joined;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    const std::optional<KnownValues> values = Known(context, i);
    if (!values) return {};
    joined.insert(joined.end(), values->begin(), values->end());
  }
  SetKnown(context, std::move(joined));
  return {};
}

Status Tile(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  const std::optional<KnownValues> repeats = Known(context, 1);
  if (repeats && repeats->size() != dims.size()) {
    return Fail(ErrorCode::kShapeMismatch, "Tile has " + std::to_string(repeats->size()) +
                                               " repeats, but the input has rank " + std::to_string(dims.size()));
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!repeats) {
      dims[d] = DataDependentDim(context);
      continue;
    }
    const Dim repeat = (*repeats)[d];
    if (repeat.is_const() && repeat.value() < 0) {
      return Fail(ErrorCode::kShapeMismatch, "repeat " + std::to_string(d) + " of Tile is negative");
    }
    dims[d] = context.symbols.Mul(dims[d], repeat);
  }
  SetDims(context, std::move(dims));
  const std::optional<KnownValues> values = Known(context, 0);
  if (!values || values->empty() || InDims(context, 0).size() != 1) return {};
  if (!FollowKnown(context, *context.outputs[0].dims)) return {};
  KnownValues repeated;
  while (static_cast<int64_t>(repeated.size()) < context.outputs[0].dims->front().value()) {
    repeated.insert(repeated.end(), values->begin(), values->end());
  }
  SetKnown(context, std::move(repeated));
  return {};
}

namespace {

// What Pad repeats from a dim must be there.
void RequirePadSource(const InferContext& context, std::string_view mode, Dim in, Dim before, Dim after) {
  if (!before.is_const() || !after.is_const()) return;
  const int64_t most = std::max(before.value(), after.value());
  if (mode == "reflect" && most >= 1) {
    if (const auto least = CheckedAdd(most, 1)) RequireAtLeast(context, in, *least);
  } else if ((mode == "edge" || mode == "wrap") && CheckedAdd(before.value(), after.value()) != 0) {
    RequireAtLeast(context, in, 1);
  }
}

}  // namespace

Status Pad(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  RETURN_IF_ERROR(RequireSameType(context, 0, 2));
  RETURN_IF_ERROR(RequireOneElement(context, 2));
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  const std::optional<KnownValues> pads = Known(context, 1);
  std::vector<int> axes;
  bool axes_known = true;
  if (Has(context, 3)) {
    const std::optional<std::vector<int64_t>> given = KnownInts(context, 3);
    axes_known = given.has_value();
    if (given) {
      ASSIGN_OR_RETURN(axes, AxisList(*given, static_cast<int>(dims.size())));
    }
  } else {
    for (size_t d = 0; d < dims.size(); ++d) axes.push_back(static_cast<int>(d));
  }
  if (!pads || !axes_known) {
    for (size_t d = 0; d < dims.size(); ++d) {
      const bool touched = !axes_known || std::find(axes.begin(), axes.end(), static_cast<int>(d)) != axes.end();
      if (touched) dims[d] = DataDependentDim(context);
    }
    SetDims(context, std::move(dims));
    return {};
  }
  if (pads->size() != axes.size() * 2) {
    return Fail(ErrorCode::kShapeMismatch, "Pad has " + std::to_string(pads->size()) + " pads for " +
                                               std::to_string(axes.size()) + " axes; it takes two per axis");
  }
  const std::string_view mode = context.attributes.Text("mode", "constant");
  for (size_t i = 0; i < axes.size(); ++i) {
    Dim& dim = dims[static_cast<size_t>(axes[i])];
    const Dim before = (*pads)[i];
    const Dim after = (*pads)[i + axes.size()];
    const Dim in = dim;
    dim = context.symbols.Add(context.symbols.Add(dim, before), after);
    if (context.symbols.Bounds(dim).max < 0) {
      return Fail(ErrorCode::kShapeMismatch, "the pads of dim " + std::to_string(axes[i]) + " take more than its " +
                                                 context.symbols.ToString(in) + " elements");
    }
    RequireAtLeast(context, dim, 0);
    RequirePadSource(context, mode, in, before, after);
    if (mode == "reflect" && in.is_const() && before.is_const() && after.is_const() &&
        std::max(before.value(), after.value()) >= std::max<int64_t>(in.value(), 1)) {
      return Fail(ErrorCode::kShapeMismatch,
                  "reflect pads of dim " + std::to_string(axes[i]) + ", " + std::to_string(before.value()) + " and " +
                      std::to_string(after.value()) + ", must be smaller than the dim, " + std::to_string(in.value()));
    }
    if ((mode == "edge" || mode == "wrap") && in == Dim::Const(0) && dim != Dim::Const(0)) {
      return Fail(ErrorCode::kShapeMismatch,
                  "dim " + std::to_string(axes[i]) + " is empty; it has no edge to pad with");
    }
  }
  SetDims(context, std::move(dims));
  return {};
}

namespace {

Status Blocks(InferContext& context, bool to_space) {
  RETURN_IF_ERROR(RequireRank(context, 0, 4, 4));
  const int64_t size = context.attributes.Int("blocksize", 0);
  if (size < 1 || size > (1 << 15)) {
    return Fail(ErrorCode::kInvalidArgument, "blocksize " + std::to_string(size) + " must be at least 1");
  }
  if (!Ranked(context, 0)) return {};
  SymbolTable& symbols = context.symbols;
  DimList dims = InDims(context, 0);
  const Dim block = Dim::Const(size);
  const auto divide = [&](size_t d, Dim by) -> Status {
    if (dims[d].is_const() && dims[d].value() % by.value() != 0) {
      return Fail(ErrorCode::kShapeMismatch, "dim " + std::to_string(d) + ", " + std::to_string(dims[d].value()) +
                                                 ", is not a multiple of " + std::to_string(by.value()));
    }
    RequireMultiple(context, dims[d], by.value());
    dims[d] = symbols.ExactDiv(dims[d], by);
    return {};
  };
  const Dim square = Dim::Const(size * size);
  if (to_space) {
    RETURN_IF_ERROR(divide(1, square));
    dims[2] = symbols.Mul(dims[2], block);
    dims[3] = symbols.Mul(dims[3], block);
  } else {
    RETURN_IF_ERROR(divide(2, block));
    RETURN_IF_ERROR(divide(3, block));
    dims[1] = symbols.Mul(dims[1], square);
  }
  SetDims(context, std::move(dims));
  return {};
}

Status Same(InferContext& context) {
  context.outputs[0].dims = In(context, 0).dims;
  return {};
}

}  // namespace

Status DepthToSpace(InferContext& context) {
  return Blocks(context, true);
}
Status SpaceToDepth(InferContext& context) {
  return Blocks(context, false);
}

Status Trilu(InferContext& context) {
  RETURN_IF_ERROR(RequireRank(context, 0, 2, limits::kRankMax));
  RETURN_IF_ERROR(RequireOneElement(context, 1));
  return Same(context);
}

Status ReverseSequence(InferContext& context) {
  RETURN_IF_ERROR(RequireRank(context, 0, 2, limits::kRankMax));
  RETURN_IF_ERROR(RequireRank(context, 1, 1, 1));
  RETURN_IF_ERROR(RequireInteger(context, 1));
  const int64_t batch = context.attributes.Int("batch_axis", 1);
  const int64_t time = context.attributes.Int("time_axis", 0);
  if ((batch != 0 && batch != 1) || time != 1 - batch) {
    return Fail(ErrorCode::kInvalidArgument,
                "batch_axis and time_axis of ReverseSequence must be 0 and 1 in some order");
  }
  if (Ranked(context, 0) && Ranked(context, 1)) {
    RETURN_IF_ERROR(RequireEqual(context, InDims(context, 0)[static_cast<size_t>(batch)], InDims(context, 1)[0],
                                 "the batch of the input and the length of sequence_lens"));
  }
  return Same(context);
}

Status CumSum(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  RETURN_IF_ERROR(RequireOneElement(context, 1));
  if (Ranked(context, 0)) {
    const std::optional<std::vector<int64_t>> axis = KnownInts(context, 1);
    if (axis && axis->size() == 1) RETURN_IF_ERROR(Axis(axis->front(), In(context, 0).rank()));
  }
  return Same(context);
}
Status CumProd(InferContext& context) {
  return CumSum(context);
}

namespace {

// dim * scale rounded down, where that is provable with symbols: whole factors and binary fractions.
std::optional<Dim> Scaled(InferContext& context, Dim dim, double scale) {
  if (dim.is_const()) return Dim::Const(ScaledSize(dim.value(), scale));
  for (int64_t divisor = 1; divisor <= 1024; divisor *= 2) {
    const double numerator = scale * static_cast<double>(divisor);
    if (numerator != std::floor(numerator) || numerator > 1e9) continue;
    const Dim product = context.symbols.Mul(dim, Dim::Const(static_cast<int64_t>(numerator)));
    return context.symbols.FloorDiv(product, Dim::Const(divisor));
  }
  return std::nullopt;
}

}  // namespace

Status Resize(InferContext& context) {
  if (Has(context, 1) && !IsFloat(In(context, 1).dtype)) {
    return Fail(ErrorCode::kShapeMismatch,
                "the roi of Resize is " + std::string(DTypeName(In(context, 1).dtype)) + "; it takes floats");
  }
  RETURN_IF_ERROR(RequireType(context, 2, DType::kF32));
  RETURN_IF_ERROR(RequireInteger(context, 3));
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  const int rank = static_cast<int>(dims.size());
  ASSIGN_OR_RETURN(const List<int> axes, ResizeAxes(context.attributes, rank));
  const bool by_sizes = Has(context, 3) && KnownLength(context, 3) != 0;
  const auto wrong_count = [&](const char* what, size_t count) {
    return Fail(ErrorCode::kShapeMismatch,
                "Resize has " + std::to_string(count) + " " + what + " for " + std::to_string(axes.size()) + " axes");
  };
  const auto unknown = [&] {
    for (const int axis : axes) dims[static_cast<size_t>(axis)] = DataDependentDim(context);
    SetDims(context, std::move(dims));
    return Status();
  };
  if (by_sizes) {
    const std::optional<KnownValues> sizes = Known(context, 3);
    if (!sizes) return unknown();
    if (sizes->size() != axes.size()) return wrong_count("sizes", sizes->size());
    const bool keeps_aspect = context.attributes.Text("keep_aspect_ratio_policy", "stretch") != "stretch";
    if (!keeps_aspect) {
      for (size_t i = 0; i < axes.size(); ++i) dims[static_cast<size_t>(axes[i])] = (*sizes)[i];
      SetDims(context, std::move(dims));
      return {};
    }
    std::vector<int64_t> in, wanted;
    for (size_t i = 0; i < axes.size(); ++i) {
      const Dim dim = dims[static_cast<size_t>(axes[i])];
      if (!dim.is_const() || !(*sizes)[i].is_const()) return unknown();
      in.push_back(dim.value());
      wanted.push_back((*sizes)[i].value());
    }
    const AspectSizes fitted = KeepAspect(context.attributes, in, wanted);
    for (size_t i = 0; i < axes.size(); ++i) dims[static_cast<size_t>(axes[i])] = Dim::Const(fitted.sizes[i]);
    SetDims(context, std::move(dims));
    return {};
  }
  const std::optional<std::vector<double>> scales = KnownFloats(context, 2);
  if (!scales) return unknown();
  if (scales->size() != axes.size()) return wrong_count("scales", scales->size());
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!((*scales)[i] > 0)) return Fail(ErrorCode::kInvalidArgument, "a scale of Resize is not positive");
    Dim& dim = dims[static_cast<size_t>(axes[i])];
    const std::optional<Dim> scaled = Scaled(context, dim, (*scales)[i]);
    dim = scaled ? *scaled : DataDependentDim(context);
  }
  SetDims(context, std::move(dims));
  return {};
}

}  // namespace kiln::rules
