// Forms of general operators: constants, casts, parts, Dropout.
#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/graph_importer.h"
#include "vm-worker/onnx/rewrite.h"
#include "vm-worker/onnx/tensor_proto.h"

namespace kiln::onnx {

Result<ValueList> Direct(NodeContext& node) {
  ASSIGN_OR_RETURN(Attributes attributes, node.Translated());
  return node.b.Emit(node.rule.op, node.inputs, std::move(attributes), node.outputs);
}

Result<ValueList> Alias(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  return ValueList{node.In(0)};
}

Result<ValueList> SplitNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  ValueList inputs = {node.In(0)};
  if (const auto split = node.attributes.Ints("split")) {
    inputs.push_back(node.b.EmitInts(*split));
  } else if (node.Has(1)) {
    inputs.push_back(node.In(1));
  }
  const int64_t parts = node.attributes.Int("num_outputs", node.outputs);
  if (parts < node.outputs || parts > 4096) {
    return Fail(ErrorCode::kMalformed, "num_outputs is " + std::to_string(parts) + " where the node has " +
                                           std::to_string(node.outputs) + " outputs");
  }
  Attributes attributes;
  attributes.Set("axis", node.attributes.Int("axis", 0));
  return node.b.Emit(TensorOp::kSplit, std::move(inputs), std::move(attributes), static_cast<int>(parts));
}

namespace {

Result<Tensor> ConstantContent(NodeContext& node) {
  if (node.attributes.all().size() != 1) {
    return Fail(ErrorCode::kMalformed, "Constant needs exactly one attribute with its value");
  }
  const auto& [name, proto] = node.attributes.all().front();
  if (name == "value") return node.importer.ReadOnce(*proto->mutable_t());
  if (name == "sparse_value") {
    WeightFiles none;
    return ReadSparseTensor(*proto->mutable_sparse_tensor(), none);
  }
  if (name == "value_float") {
    const float value = proto->f();
    return Tensor::Of<float>(DType::kF32, Dims{}, std::span(&value, 1));
  }
  if (name == "value_floats") {
    return Tensor::Of<float>(DType::kF32, Dims{proto->floats_size()},
                             std::span(proto->floats().data(), static_cast<size_t>(proto->floats_size())));
  }
  if (name == "value_int") {
    const int64_t value = proto->i();
    return Tensor::Of<int64_t>(DType::kI64, Dims{}, std::span(&value, 1));
  }
  if (name == "value_ints") {
    const std::vector<int64_t> values(proto->ints().begin(), proto->ints().end());
    return Tensor::Of<int64_t>(DType::kI64, Dims{proto->ints_size()}, std::span(values));
  }
  return Fail(ErrorCode::kUnsupported, "string constants are not supported");
}

// The one-element tensor of attribute `value`, or f32 zero.
Result<Tensor> FillValue(NodeContext& node) {
  AttributeProto* value = node.attributes.Find("value");
  if (value == nullptr) return Tensor::Zeros(DType::kF32, Dims{1});
  ASSIGN_OR_RETURN(Tensor tensor, node.importer.ReadOnce(*value->mutable_t()));
  if (tensor.ref.elements() != 1) {
    return Fail(ErrorCode::kMalformed,
                "the fill value has shape " + tensor.dims().ToString() + "; it needs one element");
  }
  return tensor;
}

Result<ValueList> Convert(NodeContext& node, DType dtype) {
  ASSIGN_OR_RETURN(const ValueId value, CastTo(node.b, node.In(0), dtype));
  return ValueList{value};
}

}  // namespace

Result<DType> DTypeAttribute(NodeContext& node, std::string_view name, DType fallback) {
  if (!node.attributes.Has(name)) return fallback;
  const int64_t number = node.attributes.Int(name, 0);
  if (number < 0 || number > INT32_MAX) {
    return Fail(ErrorCode::kMalformed, "element type number " + std::to_string(number) + " does not exist");
  }
  return DTypeOfOnnx(static_cast<int32_t>(number));
}

Result<ValueList> ConstantNode(NodeContext& node) {
  ASSIGN_OR_RETURN(Tensor tensor, ConstantContent(node));
  return ValueList{node.b.EmitConstant(std::move(tensor))};
}

Result<ValueList> ConstantOfShapeNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  ASSIGN_OR_RETURN(Tensor value, FillValue(node));
  Attributes attributes;
  attributes.Set("value", node.b.AddConstant(std::move(value), "value"));
  return node.b.Emit(TensorOp::kConstantOfShape, {node.In(0)}, std::move(attributes));
}

Result<ValueList> EyeLikeNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(node, "dtype", node.DTypeOf(node.In(0))));
  Attributes attributes;
  attributes.Set("dtype", static_cast<int64_t>(dtype));
  attributes.Set("k", node.attributes.Int("k", 0));
  return node.b.Emit(TensorOp::kEyeLike, {node.In(0)}, std::move(attributes));
}

Result<ValueList> CastNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  if (!node.attributes.Has("to")) return Fail(ErrorCode::kMalformed, "Cast needs the attribute to");
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(node, "to", DType::kF32));
  return Convert(node, dtype);
}

Result<ValueList> CastLikeNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  return Convert(node, node.DTypeOf(node.In(1)));
}

Result<ValueList> BitCastNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  if (!node.attributes.Has("to")) return Fail(ErrorCode::kMalformed, "BitCast needs the attribute to");
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(node, "to", DType::kF32));
  Attributes attributes;
  attributes.Set("to", static_cast<int64_t>(dtype));
  return node.b.Emit(TensorOp::kBitCast, {node.In(0)}, std::move(attributes));
}

// The modes had other names before operator set 20.
Result<ValueList> GridSampleNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  ASSIGN_OR_RETURN(Attributes attributes, node.Translated());
  const std::string mode = node.attributes.Text("mode", "linear");
  attributes.Set("mode", mode == "bilinear" ? std::string("linear") : mode == "bicubic" ? std::string("cubic") : mode);
  return node.b.Emit(TensorOp::kGridSample, {node.In(0), node.In(1)}, std::move(attributes));
}

// `stash_type` asks halves to be computed in f32, as they always are.
Result<ValueList> RangeNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(3));
  return node.b.Emit(TensorOp::kRange, {node.In(0), node.In(1), node.In(2)});
}

Result<ValueList> MelWeightMatrixNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(5));
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(node, "output_datatype", DType::kF32));
  Attributes attributes;
  attributes.Set("output_datatype", static_cast<int64_t>(dtype));
  return node.b.Emit(TensorOp::kMelWeightMatrix, node.inputs, std::move(attributes));
}

Result<ValueList> TfIdfVectorizerNode(NodeContext& node) {
  if (node.attributes.Has("pool_strings")) {
    return Fail(ErrorCode::kUnsupported, "n-grams of strings are not supported; only those of integers are");
  }
  return Direct(node);
}

// Inference form: the data passes, the mask is all true. Training would need randomness.
Result<ValueList> DropoutNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  if (node.attributes.Int("is_test", 1) == 0) {
    return Fail(ErrorCode::kUnsupported, "is_test = 0, training, is not supported");
  }
  if (node.Has(2)) {
    const auto training = node.b.KnownInts(node.In(2));
    const Tensor* ratio = node.b.ConstantTensor(node.In(1));
    const bool keeps_all = ratio != nullptr && ratio->dtype() == DType::kF32 && ratio->ref.elements() == 1 &&
                           ratio->values<float>()[0] == 0.0f;
    if (!training || training->size() != 1 || ((*training)[0] != 0 && !keeps_all)) {
      return Fail(ErrorCode::kUnsupported, "Dropout in training mode is not supported");
    }
  }
  if (node.outputs < 2) return ValueList{node.In(0)};
  ASSIGN_OR_RETURN(const ValueId shape, ShapeOf(node.b, node.In(0)));
  Attributes attributes;
  const bool yes = true;
  Tensor one = Tensor::Of<bool>(DType::kBool, Dims{1}, std::span(&yes, 1));
  attributes.Set("value", node.b.AddConstant(std::move(one), "value"));
  ASSIGN_OR_RETURN(ValueId mask, node.b.EmitOne(TensorOp::kConstantOfShape, {shape}, std::move(attributes)));
  if (node.opset < 10) {  // the mask had the data's type
    ASSIGN_OR_RETURN(mask, CastTo(node.b, mask, node.DTypeOf(node.In(0))));
  }
  return ValueList{node.In(0), mask};
}

Result<ValueList> TopKNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  Attributes attributes;
  attributes.Set("axis", node.attributes.Int("axis", -1));
  attributes.Set("largest", node.attributes.Int("largest", 1));
  attributes.Set("sorted", node.attributes.Int("sorted", 1));
  ValueId k = node.In(1);
  if (node.opset < 10) {
    const int64_t count[] = {node.attributes.Int("k", -1)};
    k = node.b.EmitInts(count);
  }
  return node.b.Emit(TensorOp::kTopK, {node.In(0), k}, std::move(attributes), 2);
}

Result<ValueList> ScatterNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(3));
  Attributes attributes;
  attributes.Set("axis", node.attributes.Int("axis", 0));
  return node.b.Emit(TensorOp::kScatterElements, {node.In(0), node.In(1), node.In(2)}, std::move(attributes));
}

}  // namespace kiln::onnx
