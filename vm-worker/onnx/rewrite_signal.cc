// Forms of DFT and RoiAlign that differ from the newest one.
#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {

// Below operator set 20 the axis is an attribute, by default 1.
Result<ValueList> DftNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  Attributes attributes;
  attributes.Set("inverse", node.attributes.Int("inverse", 0));
  attributes.Set("onesided", node.attributes.Int("onesided", 0));
  const ValueId axis = node.b.EmitInt(node.attributes.Int("axis", 1));
  return node.b.Emit(TensorOp::kDFT, {node.In(0), node.In(1), axis}, std::move(attributes));
}

// Below operator set 16 positions are not shifted by half a pixel.
Result<ValueList> RoiAlignNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(3));
  ASSIGN_OR_RETURN(Attributes attributes, node.Translated());
  attributes.Set("coordinate_transformation_mode", std::string("output_half_pixel"));
  return node.b.Emit(TensorOp::kRoiAlign, {node.In(0), node.In(1), node.In(2)}, std::move(attributes));
}

}  // namespace kiln::onnx
