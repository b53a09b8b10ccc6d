#include "compile-service/lower/resample.h"

#include "compile-service/lower/kernel_dtypes.h"
#include "compile-service/lower/resample_table.h"

namespace kiln::lower {

using ir::GraphNode;
using ir::GraphValue;
using ir::ScalarOp;

namespace {

constexpr Dim kZero = Dim::Const(0);
constexpr Dim kOne = Dim::Const(1);

}  // namespace

bool IsResample(const GraphNode& node) {
  return node.op == TensorOp::kResize && node.inputs.size() == 1;
}

bool OnlyMoves(const GraphNode& resample) {
  return resample.attributes.Text("mode", "nearest") == "nearest" &&
         resample.attributes.Text("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize";
}

Status AddResample(PlanBuilder& b, GroupBody& body, KernelArguments& arguments, const GraphNode& node, DType type) {
  const GraphValue data = b.graph().value(node.inputs[0]), out = b.graph().value(node.outputs[0]);
  const auto axis = static_cast<size_t>(node.attributes.Ints("axes")[0]);
  ASSIGN_OR_RETURN(const ResampleTable table, TableOf(b, node));
  ASSIGN_OR_RETURN(const Place place, b.PlaceOf(node.inputs[0]));
  Operand operand{place, data.dtype, data.dims, place.strides, true};
  operand.strides[axis] = kZero;
  const int32_t source = body.AddOperand(std::move(operand));
  ScalarBuilder& s = body.scalars();
  const int32_t extent = s.Integer(arguments.Argument(data.dims[axis]));
  const int32_t stride = s.Integer(arguments.Stride(place.strides[axis]));
  std::vector<Dim> along(out.dims.size(), kZero);
  along[axis] = kOne;
  const auto entry = [&](Place row, DType dtype, int32_t tap) {
    row.offset = b.symbols().Add(row.offset, b.symbols().Mul(out.dims[axis], Dim::Const(tap)));
    row.strides = {kOne};
    return s.Load(WideType(dtype).value(), body.AddOperand({row, dtype, {out.dims[axis]}, along, true}));
  };
  const auto element = [&](int32_t tap) {
    const int32_t position = entry(table.positions, DType::kI64, tap);
    return s.Add({ScalarOp::kLoadAt, type, position, extent, stride, source});
  };
  if (!table.weights) {
    body.Define(node.outputs[0], element(0));
    return {};
  }
  // What has no weight takes no part, whatever it is.
  int32_t sum = table.shown_outside ? entry(*table.shown_outside, DType::kF32, 0) : s.Number(type, 0);
  for (int32_t tap = 0; tap < table.taps; ++tap) {
    const int32_t weight = entry(*table.weights, DType::kF32, tap);
    const int32_t more = s.Op(ScalarOp::kAdd, type, sum, s.Op(ScalarOp::kMul, type, weight, element(tap)));
    const int32_t none = s.Op(ScalarOp::kEqual, DType::kBool, weight, s.Number(type, 0));
    sum = s.Op(ScalarOp::kSelect, type, none, sum, more);
  }
  body.Define(node.outputs[0], sum);
  return {};
}

}  // namespace kiln::lower
