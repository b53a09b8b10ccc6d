// Convolution and pooling: spatial dims as floor and ceiling divisions.
#include "common/ops/window.h"

#include <algorithm>

#include "common/ops/rules/rules.h"

namespace kiln::rules {
namespace {

// Elements that a dilated kernel of `size` spans along dim d.
Dim Extent(InferContext& context, const Window& window, int d, Dim size) {
  SymbolTable& symbols = context.symbols;
  const Dim steps = symbols.Sub(size, Dim::Const(1));
  return symbols.Add(symbols.Mul(steps, Dim::Const(window.dilations[d])), Dim::Const(1));
}

// One output dim of a sliding window that spans `extent` elements.
Result<Dim> SlidingDim(InferContext& context, const Window& window, int d, Dim in, Dim extent) {
  SymbolTable& symbols = context.symbols;
  const Dim stride = Dim::Const(window.strides[d]);
  if (window.auto_pad == AutoPad::kSameUpper || window.auto_pad == AutoPad::kSameLower) {
    return symbols.CeilDiv(in, stride);
  }
  const Dim padded = symbols.Add(in, Dim::Const(window.pads_begin[d] + window.pads_end[d]));
  const Dim room = symbols.Sub(padded, extent);
  // With ceil_mode a window may end beyond the pads, by less than a stride; by up to twice that, there is none.
  const int64_t beyond = window.ceil_mode ? 2 * window.strides[d] - 1 : 0;
  if (symbols.Bounds(room).max < -beyond) {
    const Interval bounds = symbols.Bounds(padded);
    const std::string most = padded.is_const() ? symbols.ToString(padded) : "at most " + std::to_string(bounds.max);
    return Fail(ErrorCode::kShapeMismatch, "spatial dim " + std::to_string(d) + " has " + most +
                                               " elements with its pads; the kernel spans " + symbols.ToString(extent));
  }
  if (symbols.Bounds(room).min < -beyond)
    context.Require(ConstraintKind::kLessEqual, extent, symbols.Add(padded, Dim::Const(beyond)));
  if (!window.ceil_mode) return symbols.Add(symbols.FloorDiv(room, stride), Dim::Const(1));
  // With ceil_mode the last window must still begin in the input or in the pads before it.
  const Dim rounded_up = symbols.Add(symbols.CeilDiv(room, stride), Dim::Const(1));
  const Dim starts = symbols.CeilDiv(symbols.Add(in, Dim::Const(window.pads_begin[d])), stride);
  return symbols.Min(rounded_up, starts);
}

Status RequireKernel(const Window& window) {
  for (const int64_t size : window.kernel) {
    if (size < 1) return Fail(ErrorCode::kInvalidArgument, "attribute `kernel_shape` is missing");
  }
  return {};
}

// Kernel sizes per spatial dim, from the weight and the attribute, which must agree.
Result<DimList> KernelSizes(InferContext& context, const Window& window, const DimList& weight) {
  DimList sizes;
  for (int d = 0; d < window.rank; ++d) {
    Dim size = weight[static_cast<size_t>(d + 2)];
    if (window.kernel[d] != 0) {
      if (context.Equal(size, Dim::Const(window.kernel[d])) == false) {
        return Fail(ErrorCode::kShapeMismatch, "attribute `kernel_shape` says " + std::to_string(window.kernel[d]) +
                                                   " for spatial dim " + std::to_string(d) + ", the weight " +
                                                   DimsText(context, weight));
      }
      context.Require(ConstraintKind::kEqual, size, Dim::Const(window.kernel[d]));
      size = Dim::Const(window.kernel[d]);
    }
    if (size.is_const() && size.value() < 1) {
      return Fail(ErrorCode::kShapeMismatch, "the weight has an empty spatial dim");
    }
    sizes.push_back(size);
  }
  return sizes;
}

Status Pool(InferContext& context) {
  if (const int64_t p = context.attributes.Int("p", 2); context.op == TensorOp::kLpPool && p < 1)
    return Fail(ErrorCode::kInvalidArgument, "attribute `p` of LpPool is " + std::to_string(p) + "; it is at least 1");
  RETURN_IF_ERROR(RequireRank(context, 0, 3, limits::kRankMax));
  for (size_t i = 0; i < context.outputs.size(); ++i) context.outputs[i].dims.reset();
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  const int rank = static_cast<int>(dims.size()) - 2;
  ASSIGN_OR_RETURN(const Window window, ReadWindow(context.attributes, rank));
  RETURN_IF_ERROR(RequireKernel(window));
  for (int d = 0; d < rank; ++d) {
    ASSIGN_OR_RETURN(dims[static_cast<size_t>(d + 2)],
                     SlidingDim(context, window, d, dims[static_cast<size_t>(d + 2)], Dim::Const(window.Extent(d))));
  }
  for (size_t i = 0; i < context.outputs.size(); ++i) SetDims(context, dims, i);
  return {};
}

Status GlobalPool(InferContext& context) {
  RETURN_IF_ERROR(RequireRank(context, 0, 2, limits::kRankMax));
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  std::fill(dims.begin() + 2, dims.end(), Dim::Const(1));
  SetDims(context, std::move(dims));
  return {};
}

Result<int64_t> Groups(const InferContext& context) {
  const int64_t groups = context.attributes.Int("group", 1);
  if (groups < 1) return Fail(ErrorCode::kInvalidArgument, "attribute `group` is " + std::to_string(groups));
  return groups;
}

// Whether every channel is its own group, however many there are.
bool IsDepthwise(const InferContext& context) {
  return context.op == TensorOp::kConv && context.attributes.Int("depthwise", 0) != 0;
}

}  // namespace

Status ConvShape(InferContext& context, size_t x, size_t w) {
  RETURN_IF_ERROR(RequireRank(context, x, 3, limits::kRankMax));
  if (!Ranked(context, x)) return {};
  const int full_rank = In(context, x).rank();
  RETURN_IF_ERROR(RequireRank(context, w, full_rank, full_rank));
  const DimList& in = InDims(context, x);
  const int rank = full_rank - 2;
  ASSIGN_OR_RETURN(Window window, ReadWindow(context.attributes, rank));
  window.ceil_mode = false;
  const bool depthwise = IsDepthwise(context);
  ASSIGN_OR_RETURN(const int64_t groups, Groups(context));
  if (depthwise && groups != 1)
    return Fail(ErrorCode::kInvalidArgument, "`depthwise` says what `group` is; give one of the two");
  DimList dims = in;
  if (!Ranked(context, w)) {
    for (size_t d = 1; d < dims.size(); ++d) dims[d] = context.symbols.FreshSymbol();
    SetDims(context, std::move(dims));
    return {};
  }
  const DimList& weight = InDims(context, w);
  if (depthwise) {
    RETURN_IF_ERROR(RequireEqual(context, weight[1], Dim::Const(1), "dim 1 of a depthwise weight and 1"));
    RETURN_IF_ERROR(RequireEqual(context, in[1], weight[0], "the channels of the input and of a depthwise weight"));
  } else {
    RETURN_IF_ERROR(RequireEqual(context, in[1], context.symbols.Mul(weight[1], Dim::Const(groups)),
                                 "the channels of the input and of the weight times `group`"));
  }
  if (weight[0].is_const() && weight[0].value() % groups != 0) {
    return Fail(ErrorCode::kShapeMismatch, std::to_string(weight[0].value()) + " output channels do not divide into " +
                                               std::to_string(groups) + " groups");
  }
  RequireMultiple(context, weight[0], groups);
  dims[1] = weight[0];
  ASSIGN_OR_RETURN(const DimList kernel, KernelSizes(context, window, weight));
  for (int d = 0; d < rank; ++d) {
    Dim& dim = dims[static_cast<size_t>(d + 2)];
    const Dim extent = Extent(context, window, d, kernel[static_cast<size_t>(d)]);
    ASSIGN_OR_RETURN(dim, SlidingDim(context, window, d, dim, extent));
  }
  SetDims(context, std::move(dims));
  return {};
}

Status Conv(InferContext& context) {
  RETURN_IF_ERROR(RequireSameType(context, 0, 1));
  RETURN_IF_ERROR(RequireSameType(context, 0, 2));
  RETURN_IF_ERROR(RequireRank(context, 2, 1, 1));
  if (Ranked(context, 1) && Ranked(context, 2) && !InDims(context, 1).empty()) {
    RETURN_IF_ERROR(RequireEqual(context, InDims(context, 1)[0], InDims(context, 2)[0],
                                 "the output channels of the weight and the length of the bias"));
  }
  return ConvShape(context, 0, 1);
}

Status ConvTranspose(InferContext& context) {
  RETURN_IF_ERROR(RequireSameType(context, 0, 1));
  RETURN_IF_ERROR(RequireSameType(context, 0, 2));
  RETURN_IF_ERROR(RequireRank(context, 0, 3, limits::kRankMax));
  RETURN_IF_ERROR(RequireRank(context, 2, 1, 1));
  if (!Ranked(context, 0)) return {};
  const int full_rank = In(context, 0).rank();
  RETURN_IF_ERROR(RequireRank(context, 1, full_rank, full_rank));
  const int rank = full_rank - 2;
  SymbolTable& symbols = context.symbols;
  ASSIGN_OR_RETURN(Window window, ReadWindow(context.attributes, rank));
  ASSIGN_OR_RETURN(const int64_t groups, Groups(context));
  DimList dims = InDims(context, 0);
  const std::span<const int64_t> shape = context.attributes.Ints("output_shape");
  const std::span<const int64_t> extra = context.attributes.Ints("output_padding");
  if ((!extra.empty() && static_cast<int>(extra.size()) != rank) ||
      (!shape.empty() && static_cast<int>(shape.size()) != rank)) {
    return Fail(ErrorCode::kShapeMismatch, "`output_padding` and `output_shape` take one entry per spatial dim");
  }
  for (const int64_t value : extra) {
    if (value < 0 || value > (int64_t{1} << 31))
      return Fail(ErrorCode::kInvalidArgument, "attribute `output_padding` holds " + std::to_string(value));
  }
  DimList kernel;
  if (Ranked(context, 1)) {
    const DimList& weight = InDims(context, 1);
    RETURN_IF_ERROR(RequireEqual(context, dims[1], weight[0], "the channels of the input and dim 0 of the weight"));
    if (dims[1].is_const() && dims[1].value() % groups != 0) {
      return Fail(ErrorCode::kShapeMismatch,
                  "the input channels do not divide into " + std::to_string(groups) + " groups");
    }
    RequireMultiple(context, dims[1], groups);
    dims[1] = symbols.Mul(weight[1], Dim::Const(groups));
    if (Ranked(context, 2)) {
      RETURN_IF_ERROR(
          RequireEqual(context, dims[1], InDims(context, 2)[0], "the output channels and the length of the bias"));
    }
    ASSIGN_OR_RETURN(kernel, KernelSizes(context, window, weight));
  } else {
    dims[1] = symbols.FreshSymbol();
  }
  const bool same = window.auto_pad == AutoPad::kSameUpper || window.auto_pad == AutoPad::kSameLower;
  for (int d = 0; d < rank; ++d) {
    Dim& dim = dims[static_cast<size_t>(d + 2)];
    const Dim stride = Dim::Const(window.strides[d]);
    if (!shape.empty()) {
      dim = Dim::Const(shape[static_cast<size_t>(d)]);
    } else if (same) {
      dim = symbols.Mul(dim, stride);
    } else if (kernel.empty()) {
      dim = symbols.FreshSymbol();
    } else {
      const int64_t fixed = (extra.empty() ? 0 : extra[static_cast<size_t>(d)]) - window.pads_begin[d] -
                            window.pads_end[d] - window.strides[d];
      const Dim extent = Extent(context, window, d, kernel[static_cast<size_t>(d)]);
      dim = symbols.Add(symbols.Mul(dim, stride), symbols.Add(extent, Dim::Const(fixed)));
    }
    if (symbols.Bounds(dim).max < 0) {
      return Fail(ErrorCode::kShapeMismatch, "spatial dim " + std::to_string(d) + " of ConvTranspose would be " +
                                                 symbols.ToString(dim) + "; the pads crop more than there is");
    }
    RequireAtLeast(context, dim, 0);
  }
  SetDims(context, std::move(dims));
  return {};
}

Status MaxPool(InferContext& context) {
  RETURN_IF_ERROR(Pool(context));
  SetType(context, DType::kI64, 1);
  return {};
}
Status AveragePool(InferContext& context) {
  return Pool(context);
}
Status LpPool(InferContext& context) {
  return Pool(context);
}
Status GlobalAveragePool(InferContext& context) {
  return GlobalPool(context);
}
Status GlobalMaxPool(InferContext& context) {
  return GlobalPool(context);
}

}  // namespace kiln::rules
