// Shape rules of the ops that draw random numbers, and what their attributes may be.
#include <cmath>

#include "common/ops/rules/rules.h"

namespace kiln::rules {
namespace {

Status RequireFinite(const InferContext& context, const char* name, double value) {
  if (std::isfinite(value)) return {};
  return Fail(ErrorCode::kInvalidArgument, std::string("attribute `") + name + "` of " +
                                               std::string(OpInfo(context.op).name) + " is " + std::to_string(value) +
                                               "; it must be finite");
}

// The type that attribute `dtype` names, which `allows` must take; `wanted` says what it takes.
Status SetNamedType(InferContext& context, DType fallback, bool (*allows)(DType), const char* wanted) {
  const int64_t number = context.attributes.Int("dtype", static_cast<int64_t>(fallback));
  const std::optional<DType> named =
      number < 0 || number > 255 ? std::nullopt : DTypeFromNumber(static_cast<int>(number));
  if (!named || !allows(*named)) {
    return Fail(ErrorCode::kUnsupported,
                "attribute `dtype` of " + std::string(OpInfo(context.op).name) + " is " +
                    (named ? std::string(DTypeName(*named)) : "element type number " + std::to_string(number)) +
                    "; the op makes " + wanted);
  }
  SetType(context, *named);
  return {};
}

}  // namespace

Status RandomNormal(InferContext& context) {
  const double scale = context.attributes.Float("scale", 1);
  RETURN_IF_ERROR(RequireFinite(context, "mean", context.attributes.Float("mean", 0)));
  RETURN_IF_ERROR(RequireFinite(context, "scale", scale));
  if (scale < 0) {
    return Fail(ErrorCode::kInvalidArgument, "attribute `scale` of RandomNormal, the standard deviation, is " +
                                                 std::to_string(scale) + "; it must not be negative");
  }
  RETURN_IF_ERROR(SetNamedType(context, DType::kF32, &IsFloat, "floating-point elements"));
  return SetDimsFromContents(context, 0);
}

Status RandomUniform(InferContext& context) {
  const double low = context.attributes.Float("low", 0), high = context.attributes.Float("high", 1);
  RETURN_IF_ERROR(RequireFinite(context, "low", low));
  RETURN_IF_ERROR(RequireFinite(context, "high", high));
  if (low > high) {
    return Fail(ErrorCode::kInvalidArgument, "attribute `low` of RandomUniform is " + std::to_string(low) +
                                                 " and `high` is " + std::to_string(high) +
                                                 "; `low` must not be the larger one");
  }
  RETURN_IF_ERROR(SetNamedType(context, DType::kF32, &IsFloat, "floating-point elements"));
  return SetDimsFromContents(context, 0);
}

Status Multinomial(InferContext& context) {
  RETURN_IF_ERROR(RequireFloat(context, 0));
  RETURN_IF_ERROR(RequireRank(context, 0, 2, 2));
  RETURN_IF_ERROR(SetNamedType(
      context, DType::kI32, [](DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }, "i32 or i64"));
  const int64_t samples = context.attributes.Int("sample_size", 1);
  if (samples < 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "attribute `sample_size` of Multinomial is " + std::to_string(samples) + "; it must not be negative");
  }
  const Dim batch = Ranked(context, 0) ? InDims(context, 0)[0] : DataDependentDim(context);
  SetDims(context, {batch, Dim::Const(samples)});
  return {};
}

}  // namespace kiln::rules
