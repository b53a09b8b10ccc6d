// Views: shapes, and contents that a view carries along.
#include <algorithm>
#include <numeric>

#include "common/ops/rules/rules.h"
#include "common/ops/slice_range.h"

namespace kiln::rules {
namespace {

// Contents keep their row-major order under every reshaping view.
void KeepKnown(InferContext& context) {
  if (!context.outputs[0].has_rank() || !FollowKnown(context, *context.outputs[0].dims)) return;
  if (std::optional<KnownValues> values = Known(context, 0)) SetKnown(context, std::move(*values));
}

// A shape operand of unknown contents: fresh dims where its length is known, else unknown rank.
Status UnknownShape(InferContext& context, size_t operand) {
  const std::optional<int64_t> length = KnownLength(context, operand);
  context.data_dependent = true;
  if (!length || *length > limits::kRankMax) return {};
  DimList dims;
  for (int64_t d = 0; d < *length; ++d) dims.push_back(DataDependentDim(context));
  SetDims(context, std::move(dims));
  return {};
}

}  // namespace

Status Identity(InferContext& context) {
  context.outputs[0].dims = In(context, 0).dims;
  KeepKnown(context);
  return {};
}

namespace {

struct ReshapeTarget {
  DimList dims;
  std::vector<Dim> divisors;  // dims that were given, not copied
  std::vector<bool> copied;   // per input dim
  int derived = -1;
  bool literal = true;  // no dim that was given may turn out to ask for a copy or be derived: to be 0 or -1
};

// Whether entry d of a shape means its value whatever that is. A 0 that would copy what is the same anyway does.
bool IsLiteral(const InferContext& context, size_t d, Dim value, bool allow_zero) {
  const int64_t least = context.symbols.Bounds(value).min;
  if (least >= (allow_zero ? 0 : 1)) return true;
  return least >= 0 && Ranked(context, 0) && d < InDims(context, 0).size() &&
         context.symbols.ProvenEqual(value, InDims(context, 0)[d]);
}

Result<ReshapeTarget> ReadTarget(InferContext& context, const KnownValues& shape) {
  const bool allow_zero = context.attributes.Int("allowzero", 0) != 0;
  const bool ranked = Ranked(context, 0);
  ReshapeTarget target;
  target.copied.assign(ranked ? InDims(context, 0).size() : 0, false);
  bool explicit_zero = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Dim value = shape[d];
    if (value == Dim::Const(-1)) {
      if (target.derived >= 0) {
        return Fail(ErrorCode::kShapeMismatch, "the shape of Reshape has two -1, at " + std::to_string(target.derived) +
                                                   " and " + std::to_string(d) + "; only one dim can be derived");
      }
      target.derived = static_cast<int>(d);
      target.dims.push_back(Dim::Const(0));
    } else if (value.is_const() && value.value() < 0) {
      return Fail(ErrorCode::kShapeMismatch,
                  "dim " + std::to_string(d) + " of the shape of Reshape is " + std::to_string(value.value()));
    } else if (value == Dim::Const(0) && !allow_zero) {
      if (!ranked) {
        target.dims.push_back(context.symbols.FreshSymbol());
        continue;
      }
      if (d >= target.copied.size()) {
        return Fail(ErrorCode::kShapeMismatch, "the shape of Reshape copies dim " + std::to_string(d) +
                                                   ", but the input has rank " + std::to_string(target.copied.size()));
      }
      target.copied[d] = true;
      target.dims.push_back(InDims(context, 0)[d]);
    } else {
      explicit_zero = explicit_zero || value == Dim::Const(0);
      target.literal = target.literal && IsLiteral(context, d, value, allow_zero);
      target.divisors.push_back(value);
      target.dims.push_back(value);
    }
  }
  if (explicit_zero && target.derived >= 0) {
    return Fail(ErrorCode::kShapeMismatch,
                "the shape of Reshape has a -1 beside a 0 with allowzero; it cannot be derived");
  }
  return target;
}

std::string ReshapeText(InferContext& context, const DimList& to) {
  return "cannot reshape " + DimsText(context, InDims(context, 0)) + " to " + DimsText(context, to);
}

// The -1 dim: elements of the input over the given dims. Copied dims cancel first, so that a zero among them does no
// harm.
Result<Dim> DeriveDim(InferContext& context, const ReshapeTarget& target) {
  std::vector<Dim> rest;
  for (size_t d = 0; d < target.copied.size(); ++d) {
    if (!target.copied[d]) rest.push_back(InDims(context, 0)[d]);
  }
  const Dim elements = Product(context.symbols, rest);
  const Dim divisor = Product(context.symbols, target.divisors);
  if (divisor == Dim::Const(0) || (elements.is_const() && divisor.is_const())) {
    const bool divides = elements.is_const() && divisor.value() != 0 && elements.value() % divisor.value() == 0;
    if (divides) return Dim::Const(elements.value() / divisor.value());
    if (elements == Dim::Const(0)) return Dim::Const(0);
    DimList wanted = target.dims;
    wanted[static_cast<size_t>(target.derived)] = Dim::Const(-1);
    return Fail(ErrorCode::kShapeMismatch, ReshapeText(context, wanted) + ": the elements do not divide");
  }
  const Dim quotient = context.symbols.ExactDiv(elements, divisor);
  const bool divides = context.symbols.ProvenEqual(context.symbols.Mul(quotient, divisor), elements);
  // Nothing divides into nothing: a divisor of 0 is no contradiction where there are no elements.
  if (target.literal && !divides) context.Require(ConstraintKind::kDivides, AtLeast(context, divisor, 1), elements);
  return quotient;
}

}  // namespace

Status Reshape(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  RETURN_IF_ERROR(RequireRank(context, 1, 1, 1));
  const std::optional<KnownValues> shape = Known(context, 1);
  if (!shape) return UnknownShape(context, 1);
  ASSIGN_OR_RETURN(ReshapeTarget target, ReadTarget(context, *shape));
  if (!Ranked(context, 0)) {
    if (target.derived >= 0) target.dims[static_cast<size_t>(target.derived)] = context.symbols.FreshSymbol();
    SetDims(context, std::move(target.dims));
    return {};
  }
  if (target.derived >= 0) {
    ASSIGN_OR_RETURN(target.dims[static_cast<size_t>(target.derived)], DeriveDim(context, target));
  }
  const Dim before = Product(context.symbols, InDims(context, 0));
  const Dim after = Product(context.symbols, target.dims);
  if (target.derived < 0 && context.Equal(before, after) == false) {
    return Fail(ErrorCode::kShapeMismatch, ReshapeText(context, target.dims) + ": the numbers of elements differ, " +
                                               context.symbols.ToString(before) + " and " +
                                               context.symbols.ToString(after));
  }
  if (target.derived < 0 && target.literal) context.Require(ConstraintKind::kEqual, before, after);
  SetDims(context, std::move(target.dims));
  KeepKnown(context);
  return {};
}

Status Flatten(InferContext& context) {
  if (!Ranked(context, 0)) {
    SetDims(context, {context.symbols.FreshSymbol(), context.symbols.FreshSymbol()});
    return {};
  }
  const DimList& in = InDims(context, 0);
  const int rank = static_cast<int>(in.size());
  int64_t axis = context.attributes.Int("axis", 1);
  if (axis < -rank || axis > rank) {
    return Fail(ErrorCode::kShapeMismatch,
                "axis " + std::to_string(axis) + " of Flatten is outside the rank, " + std::to_string(rank));
  }
  if (axis < 0) axis += rank;
  const std::span<const Dim> all(in);
  SetDims(context, {Product(context.symbols, all.first(static_cast<size_t>(axis))),
                    Product(context.symbols, all.subspan(static_cast<size_t>(axis)))});
  KeepKnown(context);
  return {};
}

Status Squeeze(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  if (!Ranked(context, 0)) return {};
  const DimList& in = InDims(context, 0);
  std::vector<bool> dropped(in.size(), false);
  if (Has(context, 1)) {
    const std::optional<std::vector<int64_t>> given = KnownInts(context, 1);
    if (!given) {
      context.data_dependent = true;
      return {};
    }
    ASSIGN_OR_RETURN(const std::vector<int> axes, AxisList(*given, static_cast<int>(in.size())));
    for (const int axis : axes) {
      RETURN_IF_ERROR(RequireEqual(context, in[static_cast<size_t>(axis)], Dim::Const(1),
                                   "dim " + std::to_string(axis) + " of the input of Squeeze and 1"));
      dropped[static_cast<size_t>(axis)] = true;
    }
  } else {
    for (size_t d = 0; d < in.size(); ++d) {
      const std::optional<bool> is_one = context.Equal(in[d], Dim::Const(1));
      if (!is_one) return {};  // the rank itself is open
      dropped[d] = *is_one;
    }
  }
  DimList dims;
  for (size_t d = 0; d < in.size(); ++d) {
    if (!dropped[d]) dims.push_back(in[d]);
  }
  SetDims(context, std::move(dims));
  KeepKnown(context);
  return {};
}

Status Unsqueeze(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  if (!Ranked(context, 0)) return {};
  const DimList& in = InDims(context, 0);
  const std::optional<std::vector<int64_t>> given = KnownInts(context, 1);
  if (!given) {
    context.data_dependent = true;
    const std::optional<int64_t> count = KnownLength(context, 1);
    if (!count || *count > limits::kRankMax) return {};
    DimList dims;
    for (int64_t d = 0; d < static_cast<int64_t>(in.size()) + *count; ++d) dims.push_back(DataDependentDim(context));
    SetDims(context, std::move(dims));
    return {};
  }
  const size_t rank = in.size() + given->size();
  ASSIGN_OR_RETURN(const std::vector<int> axes, AxisList(*given, static_cast<int>(rank)));
  DimList dims;
  size_t next = 0;
  for (size_t d = 0; d < rank; ++d) {
    const bool inserted = std::find(axes.begin(), axes.end(), static_cast<int>(d)) != axes.end();
    dims.push_back(inserted ? Dim::Const(1) : in[next++]);
  }
  SetDims(context, std::move(dims));
  KeepKnown(context);
  return {};
}

Status Transpose(InferContext& context) {
  if (!Ranked(context, 0)) return {};
  const DimList& in = InDims(context, 0);
  const std::span<const int64_t> perm = context.attributes.Ints("perm");
  DimList dims;
  if (perm.empty()) {
    dims.assign(in.rbegin(), in.rend());
  } else {
    if (perm.size() != in.size()) {
      return Fail(ErrorCode::kShapeMismatch, "perm of Transpose has " + std::to_string(perm.size()) +
                                                 " entries, but the input has rank " + std::to_string(in.size()));
    }
    ASSIGN_OR_RETURN(const std::vector<int> axes, AxisList(perm, static_cast<int>(in.size())));
    for (const int axis : axes) dims.push_back(in[static_cast<size_t>(axis)]);
  }
  SetDims(context, std::move(dims));
  if (in.size() <= 1) KeepKnown(context);
  return {};
}

Status Expand(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  RETURN_IF_ERROR(RequireRank(context, 1, 1, 1));
  const std::optional<KnownValues> shape = Known(context, 1);
  if (!Ranked(context, 0)) {
    context.data_dependent = context.data_dependent || !shape;
    return {};
  }
  if (shape) {
    RETURN_IF_ERROR(RequireSizes(context, *shape));
    ASSIGN_OR_RETURN(DimList dims, BroadcastDims(context, InDims(context, 0), *shape));
    SetDims(context, std::move(dims));
    const std::optional<KnownValues> values = Known(context, 0);
    if (values && values->size() == 1 && FollowKnown(context, *context.outputs[0].dims)) {
      const size_t count = static_cast<size_t>(*ConstantProduct(*context.outputs[0].dims));
      SetKnown(context, KnownValues(count, values->front()));
    } else if (*context.outputs[0].dims == InDims(context, 0)) {
      KeepKnown(context);
    }
    return {};
  }
  const std::optional<int64_t> length = KnownLength(context, 1);
  context.data_dependent = true;
  if (!length || *length > limits::kRankMax) return {};
  const DimList& in = InDims(context, 0);
  const size_t rank = std::max(in.size(), static_cast<size_t>(*length));
  DimList dims;
  for (size_t d = 0; d < rank; ++d) {
    const bool fixed = d >= rank - in.size() && context.symbols.Bounds(in[d - (rank - in.size())]).min > 1;
    dims.push_back(fixed ? in[d - (rank - in.size())] : DataDependentDim(context));
  }
  SetDims(context, std::move(dims));
  return {};
}

}  // namespace kiln::rules
