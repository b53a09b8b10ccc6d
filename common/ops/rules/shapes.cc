// Constants, shapes and what is made from them.
#include <algorithm>
#include <cmath>

#include "common/ops/kernels/kernel.h"
#include "common/ops/rules/rules.h"

namespace kiln::rules {
namespace {

// The constant an attribute names; nullptr when there is none of that number.
const kiln::Constant* ConstantOf(const InferContext& context, const char* attribute) {
  const ConstantId id = context.attributes.Constant(attribute);
  if (id < 0 || static_cast<size_t>(id) >= context.constants.size()) return nullptr;
  return &context.constants[static_cast<size_t>(id)];
}

DimList ConstantDims(const Dims& dims) {
  DimList result;
  for (const int64_t dim : dims) result.push_back(Dim::Const(dim));
  return result;
}

KnownValues ConstantValues(const Tensor& tensor) {
  KnownValues values;
  for (const int64_t value : kernels::ReadInts(tensor.ref)) values.push_back(Dim::Const(value));
  return values;
}

bool HasIntegerContents(DType dtype) {
  return !IsFloat(dtype);
}

}  // namespace

Status Constant(InferContext& context) {
  const kiln::Constant* constant = ConstantOf(context, "value");
  if (constant == nullptr) {
    return Fail(ErrorCode::kInvalidArgument, "attribute `value` of Constant names no constant of the program");
  }
  const Tensor& tensor = constant->tensor;
  SetType(context, tensor.dtype());
  SetDims(context, ConstantDims(tensor.dims()));
  if (HasIntegerContents(tensor.dtype()) && FollowKnown(context, *context.outputs[0].dims)) {
    SetKnown(context, ConstantValues(tensor));
  }
  return {};
}

Status ShapeVector(InferContext& context) {
  const std::span<const Dim> dims = context.attributes.Dims("dims");
  const bool scalar = context.attributes.Int("scalar", 0) != 0;
  if (scalar && dims.size() != 1) {
    return Fail(ErrorCode::kInvalidArgument, "a scalar ShapeVector has one dim, not " + std::to_string(dims.size()));
  }
  SetDims(context, scalar ? DimList{} : DimList{Dim::Const(static_cast<int64_t>(dims.size()))});
  SetKnown(context, KnownValues(dims.begin(), dims.end()));
  return {};
}

Status Shape(InferContext& context) {
  if (!Ranked(context, 0)) {
    SetDims(context, {DataDependentDim(context, {0, limits::kRankMax})});
    return {};
  }
  const DimList& dims = InDims(context, 0);
  const int64_t rank = static_cast<int64_t>(dims.size());
  const auto clamped = [rank](int64_t bound) { return std::clamp<int64_t>(bound < 0 ? bound + rank : bound, 0, rank); };
  const int64_t start = clamped(context.attributes.Int("start", 0));
  const int64_t end = std::max(start, clamped(context.attributes.Int("end", rank)));
  SetDims(context, {Dim::Const(end - start)});
  SetKnown(context, KnownValues(dims.begin() + start, dims.begin() + end));
  return {};
}

Status Size(InferContext& context) {
  SetDims(context, {});
  if (Ranked(context, 0)) SetKnown(context, {Product(context.symbols, InDims(context, 0))});
  return {};
}

Status ConstantOfShape(InferContext& context) {
  const kiln::Constant* constant = ConstantOf(context, "value");
  if (context.attributes.Has("value") && constant == nullptr) {
    return Fail(ErrorCode::kInvalidArgument, "attribute `value` of ConstantOfShape names no constant of the program");
  }
  if (constant != nullptr && constant->tensor.ref.elements() != 1) {
    return Fail(ErrorCode::kInvalidArgument, "attribute `value` of ConstantOfShape must hold one element");
  }
  SetType(context, constant == nullptr ? DType::kF32 : constant->tensor.dtype());
  RETURN_IF_ERROR(SetDimsFromContents(context, 0));
  if (constant == nullptr || !HasIntegerContents(constant->tensor.dtype()) || !context.outputs[0].has_rank()) return {};
  const DimList& dims = *context.outputs[0].dims;
  if (!FollowKnown(context, dims)) return {};
  const std::optional<int64_t> count = ConstantProduct(dims);
  SetKnown(context, KnownValues(static_cast<size_t>(*count), ConstantValues(constant->tensor).front()));
  return {};
}

namespace {

// Elements of a range over constants, in 128 bits so that no pair of limits overflows. Precondition: step != 0.
int64_t RangeLength(int64_t start, int64_t limit, int64_t step) {
  const __int128 wide = step, span = static_cast<__int128>(limit) - start;
  const __int128 length = step > 0 ? (span + wide - 1) / wide : (-span - wide - 1) / -wide;
  return static_cast<int64_t>(std::clamp<__int128>(length, 0, INT64_MAX));
}

// Length and contents of an integer Range, where they follow from what is known.
Result<bool> IntegerRange(InferContext& context) {
  const std::optional<KnownValues> start = Known(context, 0);
  const std::optional<KnownValues> limit = Known(context, 1);
  const std::optional<KnownValues> delta = Known(context, 2);
  if (!start || !limit || !delta || start->size() != 1 || limit->size() != 1 || delta->size() != 1) return false;
  if (!delta->front().is_const()) return false;
  const int64_t step = delta->front().value();
  if (step == 0) return Fail(ErrorCode::kInvalidArgument, "the delta of Range is 0; it must not be");
  SymbolTable& symbols = context.symbols;
  const Dim first = start->front();
  const Dim last = limit->front();
  const Dim span = step > 0 ? symbols.Sub(last, first) : symbols.Sub(first, last);
  if (step == INT64_MIN) return false;
  const Dim length = first.is_const() && last.is_const()
                         ? Dim::Const(RangeLength(first.value(), last.value(), step))
                         : AtLeast(context, symbols.CeilDiv(span, Dim::Const(std::abs(step))), 0);
  SetDims(context, {length});
  if (!FollowKnown(context, *context.outputs[0].dims)) return true;
  KnownValues values;
  for (Dim value = first; static_cast<int64_t>(values.size()) < length.value();
       value = symbols.Add(value, Dim::Const(step)))
    values.push_back(value);
  SetKnown(context, std::move(values));
  return true;
}

Result<bool> FloatRange(InferContext& context) {
  const std::optional<std::vector<double>> start = KnownFloats(context, 0);
  const std::optional<std::vector<double>> limit = KnownFloats(context, 1);
  const std::optional<std::vector<double>> delta = KnownFloats(context, 2);
  if (!start || !limit || !delta || start->size() != 1 || limit->size() != 1 || delta->size() != 1) return false;
  if (delta->front() == 0.0) return Fail(ErrorCode::kInvalidArgument, "the delta of Range is 0; it must not be");
  const double length = std::ceil((limit->front() - start->front()) / delta->front());
  if (!(length < 1e15)) return Fail(ErrorCode::kLimitExceeded, "Range has too many elements");
  SetDims(context, {Dim::Const(std::max<int64_t>(0, kernels::Convert<int64_t>(length)))});
  return true;
}

}  // namespace

Status Range(InferContext& context) {
  RETURN_IF_ERROR(RequireSameType(context, 0, 1));
  RETURN_IF_ERROR(RequireSameType(context, 0, 2));
  for (size_t i = 0; i < 3; ++i) RETURN_IF_ERROR(RequireOneElement(context, i));
  ASSIGN_OR_RETURN(const bool known, IsFloat(In(context, 0).dtype) ? FloatRange(context) : IntegerRange(context));
  if (!known) SetDims(context, {DataDependentDim(context)});
  return {};
}

Status EyeLike(InferContext& context) {
  RETURN_IF_ERROR(RequireRank(context, 0, 2, 2));
  context.outputs[0].dims = In(context, 0).dims;
  return {};
}

}  // namespace kiln::rules
