// Quantised ops: dtypes from zero points, shapes from the float ops they stand for.
#include "common/ops/rules/rules.h"

namespace kiln::rules {
namespace {

Result<DType> OutputType(const InferContext& context, DType fallback) {
  const int64_t number = context.attributes.Int("output_dtype", 0);
  if (number == 0) return fallback;
  const std::optional<DType> dtype =
      number < 0 || number > 255 ? std::nullopt : DTypeFromNumber(static_cast<int>(number));
  if (!dtype)
    return Fail(ErrorCode::kUnsupported, "element type number " + std::to_string(number) + " is not supported");
  return *dtype;
}

Status Same(InferContext& context) {
  context.outputs[0].dims = In(context, 0).dims;
  return {};
}

// Scale: one element, one per entry of `axis`, or one per block of it.
Status CheckScale(InferContext& context) {
  if (Has(context, 2) && Ranked(context, 1) && Ranked(context, 2)) {
    const int rank = In(context, 1).rank();
    RETURN_IF_ERROR(RequireRank(context, 2, rank, rank));
  }
  if (!Ranked(context, 0) || !Ranked(context, 1)) return {};
  const DimList& scale = InDims(context, 1);
  if (scale.size() != 1 || scale[0] == Dim::Const(1) || In(context, 0).rank() == 0) return {};
  ASSIGN_OR_RETURN(const int axis, Axis(context.attributes.Int("axis", 1), In(context, 0).rank()));
  return RequireBroadcastTo(context, InDims(context, 0)[static_cast<size_t>(axis)], scale[0],
                            "dim " + std::to_string(axis) + " of the input and the length of the scale");
}

// The input's and the output's scale and zero point of a quantised product are single values.
Status CheckScales(const InferContext& context) {
  for (const size_t i : {1, 6, 7}) RETURN_IF_ERROR(RequireOneElement(context, i));
  return {};
}

}  // namespace

Status QuantizeLinear(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, OutputType(context, Has(context, 2) ? In(context, 2).dtype : DType::kU8));
  SetType(context, dtype);
  RETURN_IF_ERROR(CheckScale(context));
  return Same(context);
}

Status DequantizeLinear(InferContext& context) {
  RETURN_IF_ERROR(RequireSameType(context, 0, 2));
  ASSIGN_OR_RETURN(const DType dtype, OutputType(context, In(context, 1).dtype));
  SetType(context, dtype);
  RETURN_IF_ERROR(CheckScale(context));
  return Same(context);
}

Status DynamicQuantizeLinear(InferContext& context) {
  RETURN_IF_ERROR(RequireType(context, 0, DType::kF32));
  SetType(context, DType::kU8, 0);
  SetType(context, DType::kF32, 1);
  SetType(context, DType::kU8, 2);
  SetDims(context, {}, 1);
  SetDims(context, {}, 2);
  return Same(context);
}

Status QLinearConv(InferContext& context) {
  SetType(context, In(context, 7).dtype);
  RETURN_IF_ERROR(CheckScales(context));
  RETURN_IF_ERROR(RequireType(context, 8, DType::kI32));
  RETURN_IF_ERROR(RequireRank(context, 8, 1, 1));
  if (Ranked(context, 8) && Ranked(context, 3) && In(context, 3).rank() > 0) {
    RETURN_IF_ERROR(RequireEqual(context, InDims(context, 3)[0], InDims(context, 8)[0],
                                 "the output channels of the weight and the length of the bias"));
  }
  return ConvShape(context, 0, 3);
}

Status QLinearMatMul(InferContext& context) {
  SetType(context, In(context, 7).dtype);
  RETURN_IF_ERROR(CheckScales(context));
  return MatMulShape(context, 0, 3);
}

Status MatMulInteger(InferContext& context) {
  SetType(context, DType::kI32);
  return MatMulShape(context, 0, 1);
}

Status ConvInteger(InferContext& context) {
  SetType(context, DType::kI32);
  return ConvShape(context, 0, 1);
}

}  // namespace kiln::rules
