// Slice and Split: parts of a tensor along dims.
#include <algorithm>

#include "common/ops/rules/rules.h"
#include "common/ops/slice_range.h"

namespace kiln::rules {
namespace {

// Where the sign of a bound is known: the bound counted from the front, else nullopt.
std::optional<Dim> FromFront(InferContext& context, Dim bound, Dim dim) {
  const Interval range = context.symbols.Bounds(bound);
  if (range.min >= 0) return bound;
  if (range.max < 0) return context.symbols.Add(bound, dim);
  return std::nullopt;
}

Dim Clamp(InferContext& context, Dim x, Dim high) {
  return context.symbols.Min(AtLeast(context, x, 0), high);
}

// Length of start:end:step of a dim, with symbols. nullopt when it depends on a sign that nobody knows.
std::optional<Dim> SliceLength(InferContext& context, Dim start, Dim end, int64_t step, Dim dim) {
  if (start.is_const() && end.is_const() && dim.is_const()) {
    return Dim::Const(ResolveSlice(start.value(), end.value(), step, dim.value()).length);
  }
  SymbolTable& symbols = context.symbols;
  const int64_t far = int64_t{1} << 31;  // bounds beyond any dim: "to the end", "before the start"
  if (step == INT64_MIN) return std::nullopt;
  if (step > 0) {
    const std::optional<Dim> front = FromFront(context, start, dim);
    if (!front) return std::nullopt;
    const Dim from = *front == Dim::Const(0) ? *front : Clamp(context, *front, dim);
    Dim to = dim;
    if (!end.is_const() || end.value() < far - 1) {
      const std::optional<Dim> back = FromFront(context, end, dim);
      if (!back) return std::nullopt;
      to = Clamp(context, *back, dim);
    }
    return AtLeast(context, symbols.CeilDiv(symbols.Sub(to, from), Dim::Const(step)), 0);
  }
  const Dim last = symbols.Sub(dim, Dim::Const(1));
  Dim from = last;
  if (!start.is_const() || (start.value() < far - 1 && start.value() != -1)) {
    const std::optional<Dim> front = FromFront(context, start, dim);
    if (!front) return std::nullopt;
    from = symbols.Min(AtLeast(context, *front, 0), last);
  }
  Dim to = Dim::Const(-1);
  if (!end.is_const() || end.value() > -far) {
    const std::optional<Dim> back = FromFront(context, end, dim);
    if (!back) return std::nullopt;
    to = symbols.Min(AtLeast(context, *back, -1), last);
  }
  return AtLeast(context, symbols.CeilDiv(symbols.Sub(from, to), Dim::Const(-step)), 0);
}

// Row-major contents of a slice of a 1-D value.
void FollowSlice(InferContext& context, Dim start, Dim end, int64_t step) {
  if (!FollowKnown(context, *context.outputs[0].dims) || !start.is_const() || !end.is_const()) return;
  const std::optional<KnownValues> values = Known(context, 0);
  if (!values) return;
  const SliceRange range = ResolveSlice(start.value(), end.value(), step, static_cast<int64_t>(values->size()));
  KnownValues taken;
  for (int64_t i = 0; i < range.length; ++i) taken.push_back((*values)[static_cast<size_t>(range.start + i * step)]);
  SetKnown(context, std::move(taken));
}

// The axes decide which dims change; nullopt when even they are unknown.
Result<std::optional<std::vector<int>>> SliceAxes(InferContext& context, int rank) {
  if (Has(context, 3)) {
    const std::optional<std::vector<int64_t>> given = KnownInts(context, 3);
    if (!given) return std::optional<std::vector<int>>();
    ASSIGN_OR_RETURN(std::vector<int> axes, AxisList(*given, rank));
    return std::optional<std::vector<int>>(std::move(axes));
  }
  const std::optional<int64_t> count = KnownLength(context, 1);
  if (!count) return std::optional<std::vector<int>>();
  if (*count > rank) {
    return Fail(ErrorCode::kShapeMismatch,
                "Slice has " + std::to_string(*count) + " starts, but the input has rank " + std::to_string(rank));
  }
  std::vector<int> axes;
  for (int d = 0; d < *count; ++d) axes.push_back(d);
  return std::optional<std::vector<int>>(std::move(axes));
}

}  // namespace

Status Slice(InferContext& context) {
  for (size_t i = 1; i < 5; ++i) RETURN_IF_ERROR(RequireInteger(context, i));
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  ASSIGN_OR_RETURN(const std::optional<std::vector<int>> axes, SliceAxes(context, static_cast<int>(dims.size())));
  if (!axes) {
    for (Dim& dim : dims) dim = DataDependentDim(context, {0, context.symbols.Bounds(dim).max});
    SetDims(context, std::move(dims));
    return {};
  }
  const std::optional<KnownValues> starts = Known(context, 1);
  const std::optional<KnownValues> ends = Known(context, 2);
  const std::optional<std::vector<int64_t>> steps = KnownInts(context, 4);
  const auto has_all = [&](size_t count) { return count == axes->size(); };
  if ((starts && !has_all(starts->size())) || (ends && !has_all(ends->size())) || (steps && !has_all(steps->size()))) {
    return Fail(ErrorCode::kShapeMismatch, "starts, ends, axes and steps of Slice differ in length");
  }
  for (size_t i = 0; i < axes->size(); ++i) {
    Dim& dim = dims[static_cast<size_t>((*axes)[i])];
    const bool known = starts && ends && (steps || !Has(context, 4));
    const int64_t step = steps ? (*steps)[i] : 1;
    if (step == 0) return Fail(ErrorCode::kInvalidArgument, "step " + std::to_string(i) + " of Slice is 0");
    const std::optional<Dim> length = known ? SliceLength(context, (*starts)[i], (*ends)[i], step, dim) : std::nullopt;
    dim = length ? *length : DataDependentDim(context, {0, context.symbols.Bounds(dim).max});
  }
  SetDims(context, std::move(dims));
  if (InDims(context, 0).size() == 1 && axes->size() == 1 && starts && ends && (steps || !Has(context, 4))) {
    FollowSlice(context, starts->front(), ends->front(), steps ? steps->front() : 1);
  } else if (axes->empty() && FollowKnown(context, *context.outputs[0].dims)) {
    if (std::optional<KnownValues> values = Known(context, 0)) SetKnown(context, std::move(*values));
  }
  return {};
}

namespace {

// Sizes of the parts along a dim.
Result<std::vector<Dim>> SplitSizes(InferContext& context, Dim dim) {
  SymbolTable& symbols = context.symbols;
  const size_t parts = context.outputs.size();
  if (Has(context, 1)) {
    const std::optional<KnownValues> given = Known(context, 1);
    std::vector<Dim> sizes;
    if (!given) {
      for (size_t i = 0; i < parts; ++i) sizes.push_back(DataDependentDim(context, {0, symbols.Bounds(dim).max}));
      return sizes;
    }
    if (given->size() != parts) {
      return Fail(ErrorCode::kShapeMismatch,
                  "Split has " + std::to_string(given->size()) + " sizes for " + std::to_string(parts) + " outputs");
    }
    Dim sum = Dim::Const(0);
    for (const Dim size : *given) {
      if (size.is_const() && size.value() < 0) {
        return Fail(ErrorCode::kShapeMismatch, "a size of Split is negative: " + std::to_string(size.value()));
      }
      sum = symbols.Add(sum, size);
    }
    RETURN_IF_ERROR(RequireEqual(context, sum, dim, "the sum of the sizes of Split and the dim it splits"));
    return *given;
  }
  const int64_t count = context.attributes.Int("num_outputs", static_cast<int64_t>(parts));
  if (count < static_cast<int64_t>(parts) || count < 1) {
    return Fail(ErrorCode::kShapeMismatch,
                "Split has num_outputs " + std::to_string(count) + " for " + std::to_string(parts) + " outputs");
  }
  const Dim chunk = symbols.CeilDiv(dim, Dim::Const(count));
  const bool even = symbols.Divisor(dim) % count == 0;
  std::vector<Dim> sizes;
  for (size_t i = 0; i < parts; ++i) {
    const Dim left = symbols.Sub(dim, symbols.Mul(chunk, Dim::Const(static_cast<int64_t>(i))));
    sizes.push_back(even || i == 0 ? chunk : symbols.Min(chunk, AtLeast(context, left, 0)));
  }
  return sizes;
}

}  // namespace

Status Split(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  if (!Ranked(context, 0)) return {};
  const DimList& in = InDims(context, 0);
  ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", 0), static_cast<int>(in.size())));
  ASSIGN_OR_RETURN(const std::vector<Dim> sizes, SplitSizes(context, in[static_cast<size_t>(axis)]));
  int64_t offset = 0;
  const std::optional<KnownValues> values =
      in.size() == 1 && context.want_known ? Known(context, 0) : std::optional<KnownValues>();
  for (size_t i = 0; i < context.outputs.size(); ++i) {
    DimList dims = in;
    dims[static_cast<size_t>(axis)] = sizes[i];
    SetDims(context, std::move(dims), i);
    context.outputs[i].dtype = In(context, 0).dtype;
    if (!values || offset < 0 || !sizes[i].is_const()) {
      offset = -1;
      continue;
    }
    const int64_t end = std::min<int64_t>(offset + sizes[i].value(), static_cast<int64_t>(values->size()));
    SetKnown(context, KnownValues(values->begin() + std::min(offset, end), values->begin() + end), i);
    offset = end;
  }
  return {};
}

}  // namespace kiln::rules
