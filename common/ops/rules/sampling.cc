// Grids, displaced taps, folding of columns, features of signals and texts.
#include <algorithm>

#include "common/ops/rules/rules.h"
#include "common/ops/window.h"

namespace kiln::rules {
namespace {

// A size that must not be negative.
Status RequireSize(Dim size, const std::string& what) {
  if (!size.is_const() || size.value() >= 0) return {};
  return Fail(ErrorCode::kShapeMismatch, what + " is negative: " + std::to_string(size.value()));
}

Result<DType> OutputType(const InferContext& context) {
  const int64_t number = context.attributes.Int("output_datatype", static_cast<int64_t>(DType::kF32));
  const std::optional<DType> dtype =
      number < 0 || number > 255 ? std::nullopt : DTypeFromNumber(static_cast<int>(number));
  if (!dtype) {
    return Fail(ErrorCode::kUnsupported, "element type number " + std::to_string(number) + " is not supported");
  }
  return *dtype;
}

}  // namespace

Status BitCast(InferContext& context) {
  const DType from = In(context, 0).dtype;
  const DType to = context.outputs[0].dtype;
  if (DTypeBytes(from) != DTypeBytes(to)) {
    return Fail(ErrorCode::kInvalidArgument, "BitCast from " + std::string(DTypeName(from)) + " to " +
                                                 std::string(DTypeName(to)) + ": the two differ in width");
  }
  context.outputs[0].dims = In(context, 0).dims;
  return {};
}

Status Det(InferContext& context) {
  RETURN_IF_ERROR(RequireFloat(context, 0));
  RETURN_IF_ERROR(RequireRank(context, 0, 2, limits::kRankMax));
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  RETURN_IF_ERROR(RequireEqual(context, dims[dims.size() - 2], dims.back(), "the last two dims of Det"));
  dims.resize(dims.size() - 2);
  SetDims(context, std::move(dims));
  return {};
}

// x [N, C, in…], grid [N, out…, rank].
Status GridSample(InferContext& context) {
  RETURN_IF_ERROR(RequireFloat(context, 1));
  RETURN_IF_ERROR(RequireRank(context, 0, 3, limits::kRankMax));
  if (Ranked(context, 0)) {
    const int rank = In(context, 0).rank();
    RETURN_IF_ERROR(RequireRank(context, 1, rank, rank));
  }
  if (!Ranked(context, 0) || !Ranked(context, 1)) return {};
  const DimList& x = InDims(context, 0);
  const DimList& grid = InDims(context, 1);
  RETURN_IF_ERROR(RequireEqual(context, x[0], grid[0], "the batches of the input and the grid"));
  RETURN_IF_ERROR(RequireEqual(context, grid.back(), Dim::Const(static_cast<int64_t>(x.size()) - 2),
                               "the last dim of the grid and the number of spatial dims"));
  DimList dims = {MoreKnown(x[0], grid[0]), x[1]};
  dims.insert(dims.end(), grid.begin() + 1, grid.end() - 1);
  SetDims(context, std::move(dims));
  return {};
}

// theta [N, 2, 3] with size [N, C, H, W], or [N, 3, 4] with [N, C, D, H, W].
Status AffineGrid(InferContext& context) {
  RETURN_IF_ERROR(RequireFloat(context, 0));
  RETURN_IF_ERROR(RequireInteger(context, 1));
  RETURN_IF_ERROR(RequireRank(context, 0, 3, 3));
  RETURN_IF_ERROR(RequireRank(context, 1, 1, 1));
  std::optional<int64_t> spatial;
  if (const std::optional<int64_t> length = KnownLength(context, 1)) {
    if (*length != 4 && *length != 5) {
      return Fail(ErrorCode::kShapeMismatch,
                  "the size of AffineGrid has " + std::to_string(*length) + " entries; it takes 4 or 5");
    }
    spatial = *length - 2;
  }
  if (Ranked(context, 0)) {
    const DimList& theta = InDims(context, 0);
    if (spatial) {
      RETURN_IF_ERROR(RequireEqual(context, theta[1], Dim::Const(*spatial), "dim 1 of theta and the spatial dims"));
      RETURN_IF_ERROR(
          RequireEqual(context, theta[2], Dim::Const(*spatial + 1), "dim 2 of theta and the spatial dims plus one"));
    }
  }
  if (!spatial) return {};
  DimList dims;
  const std::optional<KnownValues> size = Known(context, 1);
  for (int64_t d = 0; d < *spatial + 2; ++d) {
    if (d == 1) continue;
    const Dim dim = size ? (*size)[static_cast<size_t>(d)] : DataDependentDim(context);
    RETURN_IF_ERROR(RequireSize(dim, "entry " + std::to_string(d) + " of the size"));
    dims.push_back(dim);
  }
  if (Ranked(context, 0)) {
    RETURN_IF_ERROR(RequireEqual(context, InDims(context, 0)[0], dims[0], "the batches of theta and of the size"));
    dims[0] = MoreKnown(dims[0], InDims(context, 0)[0]);
  }
  dims.push_back(Dim::Const(*spatial));
  SetDims(context, std::move(dims));
  return {};
}

namespace {

// Channels of DeformConv's offsets (`per_tap` = spatial dims) or mask (1): groups times taps times per_tap.
Status RequireTapChannels(InferContext& context, size_t input, int64_t per_tap, const std::string& what) {
  if (!Ranked(context, input)) return {};
  const DimList& dims = InDims(context, input);
  const DimList& weight = InDims(context, 1);
  Dim taps = Dim::Const(context.attributes.Int("offset_group", 1) * per_tap);
  for (size_t d = 2; d < weight.size(); ++d) taps = context.symbols.Mul(taps, weight[d]);
  RETURN_IF_ERROR(RequireEqual(context, dims[0], InDims(context, 0)[0], "the batches of the input and the " + what));
  RETURN_IF_ERROR(
      RequireEqual(context, dims[1], taps, "the channels of the " + what + " and what the kernel asks for"));
  for (size_t d = 2; d < dims.size(); ++d) {
    RETURN_IF_ERROR(RequireEqual(context, dims[d], (*context.outputs[0].dims)[d],
                                 "dim " + std::to_string(d) + " of the " + what + " and of the output"));
  }
  return {};
}

}  // namespace

Status DeformConv(InferContext& context) {
  for (size_t i = 1; i < 5; ++i) RETURN_IF_ERROR(RequireSameType(context, 0, i));
  RETURN_IF_ERROR(RequireRank(context, 3, 1, 1));
  RETURN_IF_ERROR(ConvShape(context, 0, 1));
  if (!Ranked(context, 0) || !Ranked(context, 1)) return {};
  const int64_t offset_groups = context.attributes.Int("offset_group", 1);
  const Dim channels = InDims(context, 0)[1];
  if (offset_groups < 1 || offset_groups > (int64_t{1} << 31) ||
      (channels.is_const() && channels.value() % offset_groups != 0)) {
    return Fail(ErrorCode::kInvalidArgument, "attribute `offset_group` is " + std::to_string(offset_groups) +
                                                 "; it must divide the channels, " +
                                                 context.symbols.ToString(channels));
  }
  RequireMultiple(context, channels, offset_groups);
  if (Ranked(context, 3)) {
    RETURN_IF_ERROR(RequireEqual(context, InDims(context, 1)[0], InDims(context, 3)[0],
                                 "the output channels of the weight and the length of the bias"));
  }
  const int rank = In(context, 0).rank();
  RETURN_IF_ERROR(RequireRank(context, 2, rank, rank));
  RETURN_IF_ERROR(RequireRank(context, 4, rank, rank));
  RETURN_IF_ERROR(RequireTapChannels(context, 2, rank - 2, "offsets"));
  return RequireTapChannels(context, 4, 1, "mask");
}

// columns [N, C * taps, L], image shape, block shape.
Status Col2Im(InferContext& context) {
  RETURN_IF_ERROR(RequireRank(context, 0, 3, 3));
  RETURN_IF_ERROR(RequireInteger(context, 1));
  RETURN_IF_ERROR(RequireInteger(context, 2));
  std::optional<int64_t> rank = KnownLength(context, 1);
  if (!rank) rank = KnownLength(context, 2);
  if (!rank) return {};
  if (*rank < 1 || *rank > limits::kRankMax - 2) {
    return Fail(ErrorCode::kShapeMismatch, "the image of Col2Im has " + std::to_string(*rank) + " spatial dims");
  }
  if (const auto blocks = KnownLength(context, 2); blocks && *blocks != *rank) {
    return Fail(ErrorCode::kShapeMismatch, "the image of Col2Im has " + std::to_string(*rank) +
                                               " spatial dims, its blocks " + std::to_string(*blocks));
  }
  ASSIGN_OR_RETURN(Window window, ReadWindow(context.attributes, static_cast<int>(*rank)));
  const std::optional<KnownValues> image = Known(context, 1);
  const std::optional<KnownValues> block = Known(context, 2);
  DimList dims(static_cast<size_t>(*rank) + 2);
  const Dim taps = block ? Product(context.symbols, *block) : DataDependentDim(context, {1, Interval::kNoBound});
  Dim positions = Dim::Const(1);
  for (size_t d = 0; d < static_cast<size_t>(*rank); ++d) {
    dims[d + 2] = image ? (*image)[d] : DataDependentDim(context);
    RETURN_IF_ERROR(RequireSize(dims[d + 2], "entry " + std::to_string(d) + " of the image shape"));
    if (block && (*block)[d].is_const() && ((*block)[d].value() < 1 || (*block)[d].value() > (int64_t{1} << 31))) {
      return Fail(ErrorCode::kShapeMismatch, "entry " + std::to_string(d) + " of the block shape is " +
                                                 std::to_string((*block)[d].value()) + "; it must be from 1 to 2^31");
    }
    if (!image || !block) continue;
    SymbolTable& symbols = context.symbols;
    const int at = static_cast<int>(d);
    const Dim reach = symbols.Mul(symbols.Sub((*block)[d], Dim::Const(1)), Dim::Const(window.dilations[at]));
    const Dim padded = symbols.Add(dims[d + 2], Dim::Const(window.pads_begin[at] + window.pads_end[at] - 1));
    const Dim steps = symbols.FloorDiv(symbols.Sub(padded, reach), Dim::Const(window.strides[at]));
    positions = symbols.Mul(positions, AtLeast(context, symbols.Add(steps, Dim::Const(1)), 0));
  }
  if (!Ranked(context, 0)) {
    dims[0] = context.symbols.FreshSymbol();
    dims[1] = context.symbols.FreshSymbol();
    SetDims(context, std::move(dims));
    return {};
  }
  const DimList& columns = InDims(context, 0);
  dims[0] = columns[0];
  if (image && block) {
    RETURN_IF_ERROR(RequireEqual(context, columns[2], positions, "the columns and the positions of the blocks"));
  }
  if (columns[1].is_const() && taps.is_const() && columns[1].value() % taps.value() != 0) {
    return Fail(ErrorCode::kShapeMismatch, "dim 1 of the columns, " + std::to_string(columns[1].value()) +
                                               ", is not a multiple of the block's size, " +
                                               std::to_string(taps.value()));
  }
  if (taps.is_const() && taps.value() >= 1) RequireMultiple(context, columns[1], taps.value());
  dims[1] = block ? context.symbols.ExactDiv(columns[1], taps) : DataDependentDim(context);
  SetDims(context, std::move(dims));
  return {};
}

// The size that pooling of these attributes had come from, unless input 2 says it.
Status MaxUnpool(InferContext& context) {
  RETURN_IF_ERROR(RequireType(context, 1, DType::kI64));
  RETURN_IF_ERROR(RequireType(context, 2, DType::kI64));
  RETURN_IF_ERROR(RequireRank(context, 0, 3, limits::kRankMax));
  if (!Ranked(context, 0)) return {};
  const DimList& in = InDims(context, 0);
  const int rank = static_cast<int>(in.size()) - 2;
  RETURN_IF_ERROR(RequireRank(context, 1, rank + 2, rank + 2));
  for (size_t d = 0; Ranked(context, 1) && d < in.size(); ++d) {
    RETURN_IF_ERROR(RequireEqual(context, in[d], InDims(context, 1)[d],
                                 "dims " + std::to_string(d) + " of the values and the indices"));
  }
  ASSIGN_OR_RETURN(const Window window, ReadWindow(context.attributes, rank));
  DimList dims = in;
  for (int d = 0; d < rank; ++d) {
    if (window.kernel[d] < 1) return Fail(ErrorCode::kInvalidArgument, "attribute `kernel_shape` is missing");
    const int64_t fixed = window.kernel[d] - window.strides[d] - window.pads_begin[d] - window.pads_end[d];
    Dim& dim = dims[static_cast<size_t>(d + 2)];
    dim = context.symbols.Add(context.symbols.Mul(dim, Dim::Const(window.strides[d])), Dim::Const(fixed));
    RETURN_IF_ERROR(RequireSize(dim, "spatial dim " + std::to_string(d) + " of MaxUnpool"));
  }
  if (Has(context, 2)) {
    if (const auto length = KnownLength(context, 2); length && *length != rank + 2) {
      return Fail(ErrorCode::kShapeMismatch, "the output shape of MaxUnpool has " + std::to_string(*length) +
                                                 " entries for rank " + std::to_string(rank + 2));
    }
    const std::optional<KnownValues> shape = Known(context, 2);
    for (size_t d = 0; d < dims.size(); ++d) {
      dims[d] = shape ? (*shape)[d] : DataDependentDim(context);
      RETURN_IF_ERROR(RequireSize(dims[d], "entry " + std::to_string(d) + " of the output shape"));
    }
  }
  SetDims(context, std::move(dims));
  return {};
}

Status TensorScatter(InferContext& context) {
  RETURN_IF_ERROR(RequireSameType(context, 0, 1));
  RETURN_IF_ERROR(RequireType(context, 2, DType::kI64));
  RETURN_IF_ERROR(RequireRank(context, 0, 2, limits::kRankMax));
  RETURN_IF_ERROR(RequireRank(context, 2, 1, 1));
  context.outputs[0].dims = In(context, 0).dims;
  if (!Ranked(context, 0)) return {};
  const DimList& cache = InDims(context, 0);
  const int rank = static_cast<int>(cache.size());
  RETURN_IF_ERROR(RequireRank(context, 1, rank, rank));
  ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", -2), rank));
  if (axis == 0) return Fail(ErrorCode::kInvalidArgument, "axis of TensorScatter is 0, which is the batch");
  const std::string_view mode = context.attributes.Text("mode", "linear");
  if (mode != "linear" && mode != "circular") {
    return Fail(ErrorCode::kInvalidArgument, "mode '" + std::string(mode) + "' of TensorScatter is unknown");
  }
  for (int d = 0; Ranked(context, 1) && d < rank; ++d) {
    if (d == axis) continue;
    const size_t at = static_cast<size_t>(d);
    RETURN_IF_ERROR(RequireEqual(context, cache[at], InDims(context, 1)[at],
                                 "dims " + std::to_string(d) + " of the cache and the update"));
  }
  if (!Ranked(context, 2)) return {};
  return RequireEqual(context, cache[0], InDims(context, 2)[0], "the batch and the length of the write indices");
}

Status MelWeightMatrix(InferContext& context) {
  for (size_t i = 0; i < 3; ++i) {
    RETURN_IF_ERROR(RequireInteger(context, i));
    RETURN_IF_ERROR(RequireOneElement(context, i));
  }
  for (size_t i = 3; i < 5; ++i) {
    RETURN_IF_ERROR(RequireFloat(context, i));
    RETURN_IF_ERROR(RequireOneElement(context, i));
  }
  ASSIGN_OR_RETURN(context.outputs[0].dtype, OutputType(context));
  const std::optional<KnownValues> bins = Known(context, 0);
  const std::optional<KnownValues> length = Known(context, 1);
  const Dim rows = length && length->size() == 1
                       ? context.symbols.Add(context.symbols.FloorDiv(length->front(), Dim::Const(2)), Dim::Const(1))
                       : DataDependentDim(context);
  const Dim columns = bins && bins->size() == 1 ? bins->front() : DataDependentDim(context);
  RETURN_IF_ERROR(RequireSize(rows, "the number of spectrogram bins"));
  RETURN_IF_ERROR(RequireSize(columns, "the number of mel bins"));
  SetDims(context, {rows, columns});
  return {};
}

// One row per input row, as long as the highest index of an n-gram asks for.
Status TfIdfVectorizer(InferContext& context) {
  SetType(context, DType::kF32);
  RETURN_IF_ERROR(RequireInteger(context, 0));
  RETURN_IF_ERROR(RequireRank(context, 0, 1, 2));
  int64_t columns = 0;
  for (const int64_t index : context.attributes.Ints("ngram_indexes")) {
    if (index < 0 || index > (int64_t{1} << 31)) {
      return Fail(ErrorCode::kInvalidArgument, "attribute `ngram_indexes` holds " + std::to_string(index));
    }
    columns = std::max(columns, index + 1);
  }
  if (columns == 0) return Fail(ErrorCode::kInvalidArgument, "attribute `ngram_indexes` is missing");
  if (!Ranked(context, 0)) return {};
  if (In(context, 0).rank() == 1) {
    SetDims(context, {Dim::Const(columns)});
  } else {
    SetDims(context, {InDims(context, 0)[0], Dim::Const(columns)});
  }
  return {};
}

}  // namespace kiln::rules
