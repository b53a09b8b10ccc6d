// Reductions, ArgMax and ArgMin.
#include <algorithm>

#include "common/ops/rules/rules.h"

namespace kiln::rules {
namespace {

Status Reduce(InferContext& context) {
  RETURN_IF_ERROR(RequireInteger(context, 1));
  if (!Ranked(context, 0)) return {};
  const DimList& in = InDims(context, 0);
  const bool keeps = context.attributes.Int("keepdims", 1) != 0;
  const bool all_without_axes = context.attributes.Int("noop_with_empty_axes", 0) == 0;
  std::vector<bool> reduced(in.size(), false);
  const bool has_axes = Has(context, 1) && KnownLength(context, 1) != 0;
  if (has_axes) {
    const std::optional<std::vector<int64_t>> given = KnownInts(context, 1);
    if (!given) {
      context.data_dependent = true;
      if (!keeps) return {};
      DimList dims;
      for (const Dim dim : in) {
        dims.push_back(dim == Dim::Const(1)
                           ? dim
                           : DataDependentDim(context, {0, std::max<int64_t>(1, context.symbols.Bounds(dim).max)}));
      }
      SetDims(context, std::move(dims));
      return {};
    }
    ASSIGN_OR_RETURN(const std::vector<int> axes, AxisList(*given, static_cast<int>(in.size())));
    for (const int axis : axes) reduced[static_cast<size_t>(axis)] = true;
  } else if (all_without_axes) {
    reduced.assign(in.size(), true);
  }
  DimList dims;
  for (size_t d = 0; d < in.size(); ++d) {
    if (!reduced[d]) {
      dims.push_back(in[d]);
    } else if (keeps) {
      dims.push_back(Dim::Const(1));
    }
  }
  SetDims(context, std::move(dims));
  return {};
}

using Fold = Dim (SymbolTable::*)(Dim, Dim);

// A reduction whose result over all of a small known vector stays known.
Status ReduceFollowed(InferContext& context, Fold fold) {
  RETURN_IF_ERROR(Reduce(context));
  if (!context.outputs[0].has_rank() || !FollowKnown(context, *context.outputs[0].dims)) return {};
  if (!FollowKnown(context, InDims(context, 0))) return {};
  const bool whole = ConstantProduct(*context.outputs[0].dims) == 1;
  const std::optional<KnownValues> values = Known(context, 0);
  if (!whole || !values || values->empty()) return {};
  Dim result = values->front();
  for (size_t i = 1; i < values->size(); ++i) result = (context.symbols.*fold)(result, (*values)[i]);
  SetKnown(context, {result});
  return {};
}

Status ArgReduce(InferContext& context) {
  if (!Ranked(context, 0)) return {};
  DimList dims = InDims(context, 0);
  ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", 0), static_cast<int>(dims.size())));
  const Dim reduced = dims[static_cast<size_t>(axis)];
  if (reduced == Dim::Const(0)) {
    return Fail(ErrorCode::kShapeMismatch, "dim " + std::to_string(axis) + " is empty; it has no extreme element");
  }
  RequireAtLeast(context, reduced, 1);
  if (context.attributes.Int("keepdims", 1) != 0) {
    dims[static_cast<size_t>(axis)] = Dim::Const(1);
  } else {
    dims.erase(dims.begin() + axis);
  }
  SetDims(context, std::move(dims));
  return {};
}

}  // namespace

Status ReduceSum(InferContext& context) {
  return ReduceFollowed(context, &SymbolTable::Add);
}
Status ReduceProd(InferContext& context) {
  return ReduceFollowed(context, &SymbolTable::Mul);
}
Status ReduceMax(InferContext& context) {
  return ReduceFollowed(context, &SymbolTable::Max);
}
Status ReduceMin(InferContext& context) {
  return ReduceFollowed(context, &SymbolTable::Min);
}
Status ReduceMean(InferContext& context) {
  return Reduce(context);
}
Status ReduceL1(InferContext& context) {
  return Reduce(context);
}
Status ReduceL2(InferContext& context) {
  return Reduce(context);
}
Status ReduceSumSquare(InferContext& context) {
  return Reduce(context);
}
Status ReduceLogSum(InferContext& context) {
  return Reduce(context);
}
Status ReduceLogSumExp(InferContext& context) {
  return Reduce(context);
}
Status ArgMax(InferContext& context) {
  return ArgReduce(context);
}
Status ArgMin(InferContext& context) {
  return ArgReduce(context);
}

}  // namespace kiln::rules
