#include "common/ops/rules/rules.h"

#include <algorithm>

#include "common/base/checked_math.h"

namespace kiln::rules {

std::optional<KnownValues> Known(InferContext& context, size_t i) {
  if (!Has(context, i) || !context.known) return std::nullopt;
  return context.known(static_cast<int>(i));
}

std::optional<std::vector<int64_t>> KnownInts(InferContext& context, size_t i) {
  const std::optional<KnownValues> values = Known(context, i);
  if (!values) return std::nullopt;
  std::vector<int64_t> result;
  result.reserve(values->size());
  for (const Dim value : *values) {
    if (!value.is_const()) return std::nullopt;
    result.push_back(value.value());
  }
  return result;
}

std::optional<std::vector<double>> KnownFloats(InferContext& context, size_t i) {
  if (!Has(context, i) || !context.known_floats) return std::nullopt;
  return context.known_floats(static_cast<int>(i));
}

std::optional<int64_t> KnownLength(const InferContext& context, size_t i) {
  if (!Ranked(context, i)) return std::nullopt;
  return ConstantProduct(InDims(context, i));
}

bool FollowKnown(const InferContext& context, const DimList& dims) {
  if (!context.want_known) return false;
  const std::optional<int64_t> count = ConstantProduct(dims);
  return count && *count >= 0 && *count <= limits::kShapeContentsMax;
}

Dim DataDependentDim(InferContext& context, Interval range) {
  context.data_dependent = true;
  return context.symbols.FreshSymbol(range);
}

Status SetDimsFromContents(InferContext& context, size_t i) {
  RETURN_IF_ERROR(RequireInteger(context, i));
  RETURN_IF_ERROR(RequireRank(context, i, 1, 1));
  if (std::optional<KnownValues> sizes = Known(context, i)) {
    RETURN_IF_ERROR(RequireSizes(context, *sizes));
    SetDims(context, *std::move(sizes));
    return {};
  }
  const std::optional<int64_t> length = KnownLength(context, i);
  if (!length || *length > limits::kRankMax) {
    context.data_dependent = true;
    return {};
  }
  DimList dims;
  for (int64_t d = 0; d < *length; ++d) dims.push_back(DataDependentDim(context));
  SetDims(context, std::move(dims));
  return {};
}

Result<int> Axis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return Fail(ErrorCode::kShapeMismatch,
                "axis " + std::to_string(axis) + " is outside the rank, " + std::to_string(rank) + ", of its tensor");
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Result<std::vector<int>> AxisList(std::span<const int64_t> axes, int rank) {
  std::vector<int> result;
  result.reserve(axes.size());
  for (const int64_t given : axes) {
    ASSIGN_OR_RETURN(const int axis, Axis(given, rank));
    if (std::find(result.begin(), result.end(), axis) != result.end()) {
      return Fail(ErrorCode::kInvalidArgument, "axis " + std::to_string(given) + " is given twice");
    }
    result.push_back(axis);
  }
  return result;
}

Status RequireRank(const InferContext& context, size_t i, int min_rank, int max_rank) {
  if (!Ranked(context, i)) return {};
  const int rank = In(context, i).rank();
  if (rank >= min_rank && rank <= max_rank) return {};
  const std::string wanted =
      min_rank == max_rank ? std::to_string(min_rank) : std::to_string(min_rank) + " to " + std::to_string(max_rank);
  return Fail(ErrorCode::kShapeMismatch, "input " + std::to_string(i) + " has rank " + std::to_string(rank) +
                                             " and shape " + DimsText(context, InDims(context, i)) +
                                             "; the op takes rank " + wanted);
}

Status RequireSameType(const InferContext& context, size_t i, size_t j) {
  if (!Has(context, i) || !Has(context, j) || In(context, i).dtype == In(context, j).dtype) return {};
  return Fail(ErrorCode::kShapeMismatch, "input " + std::to_string(i) + " is " +
                                             std::string(DTypeName(In(context, i).dtype)) + ", but input " +
                                             std::to_string(j) + " is " + std::string(DTypeName(In(context, j).dtype)));
}

Status RequireType(const InferContext& context, size_t i, DType dtype) {
  if (!Has(context, i) || In(context, i).dtype == dtype) return {};
  return Fail(ErrorCode::kShapeMismatch, "input " + std::to_string(i) + " is " +
                                             std::string(DTypeName(In(context, i).dtype)) + "; the op takes " +
                                             std::string(DTypeName(dtype)));
}

Status RequireFloat(const InferContext& context, size_t i) {
  if (!Has(context, i) || IsFloat(In(context, i).dtype)) return {};
  return Fail(ErrorCode::kShapeMismatch, "input " + std::to_string(i) + " is " +
                                             std::string(DTypeName(In(context, i).dtype)) +
                                             "; the op takes floating-point elements");
}

Status RequireInteger(const InferContext& context, size_t i) {
  if (!Has(context, i)) return {};
  const DType dtype = In(context, i).dtype;
  if (dtype == DType::kI64 || dtype == DType::kI32) return {};
  return Fail(ErrorCode::kShapeMismatch,
              "input " + std::to_string(i) + " is " + std::string(DTypeName(dtype)) + "; the op takes i32 or i64");
}

Status RequireOneElement(const InferContext& context, size_t i) {
  const std::optional<int64_t> length = KnownLength(context, i);
  if (!length && Ranked(context, i))
    context.Require(ConstraintKind::kEqual, Product(context.symbols, InDims(context, i)), Dim::Const(1));
  if (!length || *length == 1) return {};
  return Fail(ErrorCode::kShapeMismatch,
              "input " + std::to_string(i) + " must hold one element, not " + std::to_string(*length));
}

Status RequireEqual(InferContext& context, Dim a, Dim b, const std::string& what) {
  if (context.Equal(a, b) != false) {
    context.Require(ConstraintKind::kEqual, a, b);
    return {};
  }
  return Fail(ErrorCode::kShapeMismatch,
              what + " differ: " + context.symbols.ToString(a) + " and " + context.symbols.ToString(b));
}

Status RequireBroadcastTo(InferContext& context, Dim to, Dim from, const std::string& what) {
  const Dim one = Dim::Const(1);
  if (from == one || context.symbols.ProvenEqual(to, from)) return {};
  const Interval bounds = context.symbols.Bounds(from);
  const bool may_be_one = bounds.min <= 1 && bounds.max >= 1;
  if (may_be_one && (context.policy != UnprovenPolicy::kAssume || context.Equal(from, one) == true)) {
    // Where `to` may be 1 itself this is less than what is asked, and the rest is left to the call.
    context.Require(to == one ? ConstraintKind::kEqual : ConstraintKind::kBroadcasts, from, to);
    return {};
  }
  return RequireEqual(context, to, from, what);
}

Status RequireBroadcastTo(InferContext& context, const DimList& to, const DimList& from, const std::string& which) {
  if (from.size() > to.size()) {
    return Fail(ErrorCode::kShapeMismatch,
                which + " of shape " + DimsText(context, from) + " does not broadcast to " + DimsText(context, to));
  }
  const size_t lead = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    RETURN_IF_ERROR(RequireBroadcastTo(
        context, to[lead + d], from[d],
        "dim " + std::to_string(lead + d) + " of the input and dim " + std::to_string(d) + " of " + which));
  }
  return {};
}

Dim Product(SymbolTable& symbols, std::span<const Dim> dims) {
  Dim product = Dim::Const(1);
  for (const Dim dim : dims) product = symbols.Mul(product, dim);
  return product;
}

Result<DimList> BroadcastDims(InferContext& context, const DimList& a, const DimList& b) {
  const DimList& longer = a.size() >= b.size() ? a : b;
  const DimList& shorter = a.size() >= b.size() ? b : a;
  DimList result = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t d = 0; d < shorter.size(); ++d) {
    Result<Dim> dim = context.Broadcast(longer[lead + d], shorter[d]);
    if (!dim) {
      return FailIn("shapes " + DimsText(context, a) + " and " + DimsText(context, b), dim.error());
    }
    result[lead + d] = *dim;
  }
  return result;
}

Dim AtLeast(InferContext& context, Dim x, int64_t low) {
  if (x.is_const()) return Dim::Const(std::max(x.value(), low));
  if (context.symbols.Bounds(x).min >= low) return x;
  return context.symbols.Max(x, Dim::Const(low));
}

Status RequireSizes(InferContext& context, const DimList& dims) {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d].is_const() && dims[d].value() < 0)
      return Fail(ErrorCode::kShapeMismatch,
                  "dim " + std::to_string(d) + " of the shape is negative: " + std::to_string(dims[d].value()));
    RequireAtLeast(context, dims[d], 0);
  }
  return {};
}

void RequireMultiple(const InferContext& context, Dim dim, int64_t divisor) {
  context.Require(ConstraintKind::kDivides, Dim::Const(divisor), dim);
}

void RequireAtLeast(const InferContext& context, Dim dim, int64_t low) {
  context.Require(ConstraintKind::kLessEqual, Dim::Const(low), dim);
}

std::optional<int64_t> ConstantProduct(std::span<const Dim> dims) {
  int64_t product = 1;
  for (const Dim dim : dims) {
    if (!dim.is_const()) return std::nullopt;
    const std::optional<int64_t> next = CheckedMul(product, dim.value());
    if (!next) return std::nullopt;
    product = *next;
  }
  return product;
}

std::string DimsText(const InferContext& context, const DimList& dims) {
  std::string text = "[";
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d > 0) text += ", ";
    text += context.symbols.ToString(dims[d]);
  }
  return text + "]";
}

}  // namespace kiln::rules
