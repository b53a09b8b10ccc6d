// Forms of network operators: Softmax below 13, batch and group normalisation, Resize and Upsample.
#include "vm-worker/onnx/chain.h"
#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {

// Below opset 13 the input is seen as a matrix that splits at `axis`; one row is one distribution.
Result<ValueList> FlatSoftmax(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  const ValueId x = node.In(0);
  const int rank = node.RankOf(x);
  int64_t axis = node.attributes.Int("axis", 1);
  if (axis < 0 && rank >= 0) axis += rank;
  Attributes along;
  along.Set("axis", int64_t{-1});
  if (rank >= 0 && axis == rank - 1) return node.b.Emit(node.rule.op, {x}, std::move(along));
  Attributes split;
  split.Set("axis", axis);
  ASSIGN_OR_RETURN(const ValueId rows, node.b.EmitOne(TensorOp::kFlatten, {x}, std::move(split)));
  ASSIGN_OR_RETURN(const ValueId result, node.b.EmitOne(node.rule.op, {rows}, std::move(along)));
  ASSIGN_OR_RETURN(const ValueId shape, ShapeOf(node.b, x));
  Attributes zeros_are_sizes;
  zeros_are_sizes.Set("allowzero", int64_t{1});
  return node.b.Emit(TensorOp::kReshape, {result, shape}, std::move(zeros_are_sizes));
}

namespace {

// y from the batch's own statistics, and the running ones moved towards them by (1 - momentum).
Result<ValueList> TrainingBatchNormalization(NodeContext& node, Attributes attributes) {
  ProgramBuilder& b = node.b;
  const ValueId x = node.In(0);
  const int rank = node.RankOf(x);
  if (rank < 2) return Fail(ErrorCode::kUnsupported, "training mode needs a known rank of at least 2");
  std::vector<int64_t> axes = {0};
  for (int64_t i = 2; i < rank; ++i) axes.push_back(i);
  ASSIGN_OR_RETURN(const ValueId kept_mean, ReduceOver(b, TensorOp::kReduceMean, x, axes, true));
  ASSIGN_OR_RETURN(const ValueId centred, b.EmitOne(TensorOp::kSub, {x, kept_mean}));
  ASSIGN_OR_RETURN(const ValueId squares, b.EmitOne(TensorOp::kMul, {centred, centred}));
  ASSIGN_OR_RETURN(const ValueId variance, ReduceOver(b, TensorOp::kReduceMean, squares, axes, false));
  ASSIGN_OR_RETURN(const ValueId mean, ReduceOver(b, TensorOp::kReduceMean, x, axes, false));
  ASSIGN_OR_RETURN(const ValueId y, b.EmitOne(TensorOp::kBatchNormalization,
                                              {x, node.In(1), node.In(2), mean, variance}, std::move(attributes)));
  const double momentum = node.attributes.Float("momentum", 0.9f);
  const auto moved = [&](ValueId running, ValueId current) -> Result<ValueId> {
    const DType dtype = node.DTypeOf(running);
    ASSIGN_OR_RETURN(const ValueId old_part, b.EmitOne(TensorOp::kMul, {running, b.EmitScalar(momentum, dtype)}));
    ASSIGN_OR_RETURN(const ValueId typed, CastTo(b, current, dtype));
    ASSIGN_OR_RETURN(const ValueId new_part, b.EmitOne(TensorOp::kMul, {typed, b.EmitScalar(1.0 - momentum, dtype)}));
    return b.EmitOne(TensorOp::kAdd, {old_part, new_part});
  };
  ValueList outputs = {y};
  if (node.outputs > 1) {
    ASSIGN_OR_RETURN(const ValueId running_mean, moved(node.In(3), mean));
    outputs.push_back(running_mean);
  }
  if (node.outputs > 2) {
    ASSIGN_OR_RETURN(const ValueId running_variance, moved(node.In(4), variance));
    outputs.push_back(running_variance);
  }
  return outputs;
}

// `spatial` = 0 of operator sets below 9: scale, bias, mean and variance of every element of a batch entry.
Result<ValueList> PerActivationNormalization(NodeContext& node) {
  if (node.outputs > 1) return Fail(ErrorCode::kUnsupported, "statistics as outputs need operator set 14 or later");
  Chain c(node.b);
  const DType dtype = node.DTypeOf(node.In(0));
  const ValueId centred = c.Sub(node.In(0), node.In(3));
  const ValueId epsilon = c.Scalar(node.attributes.Float("epsilon", 1e-5f), dtype);
  const ValueId deviation = c.Do(TensorOp::kSqrt, {c.Add(node.In(4), epsilon)});
  return c.Done({c.Add(c.Mul(c.Div(centred, deviation), node.In(1)), node.In(2))});
}

}  // namespace

Result<ValueList> BatchNormalizationNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(5));
  Attributes attributes;
  attributes.Set("epsilon", node.attributes.Float("epsilon", 1e-5f));
  if (node.attributes.Int("is_test", 1) == 0)
    return Fail(ErrorCode::kUnsupported, "is_test = 0, training, is not supported");
  if (node.opset < 9 && node.attributes.Int("spatial", 1) != 1) return PerActivationNormalization(node);
  if (node.attributes.Int("training_mode", 0) != 0) return TrainingBatchNormalization(node, std::move(attributes));
  if (node.outputs > 1) {
    return Fail(ErrorCode::kUnsupported, "statistics as outputs need training mode of operator set 14 or later");
  }
  return node.b.Emit(TensorOp::kBatchNormalization, node.inputs, std::move(attributes));
}

// Operator sets 18 to 20 give scale and bias per group; each holds for C / num_groups channels.
Result<ValueList> GroupNormalizationPerGroup(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(3));
  ProgramBuilder& b = node.b;
  const int64_t groups = node.attributes.Int("num_groups", 0);
  if (groups < 1) return Fail(ErrorCode::kMalformed, "num_groups must be at least 1");
  ASSIGN_OR_RETURN(const ValueId channels, DimOf(b, node.In(0), 1));
  const int64_t divisor[] = {groups};
  ASSIGN_OR_RETURN(const ValueId per_group, b.EmitOne(TensorOp::kDiv, {channels, b.EmitInts(divisor)}));
  Attributes along;
  along.Set("axis", int64_t{0});
  ASSIGN_OR_RETURN(const ValueId spread, b.EmitOne(TensorOp::kConcat, {b.EmitInts(divisor), per_group}, along));
  ValueList inputs = {node.In(0)};
  for (size_t i : {1, 2}) {
    const int64_t last[] = {1};
    ASSIGN_OR_RETURN(const ValueId column, b.EmitOne(TensorOp::kUnsqueeze, {node.In(i), b.EmitInts(last)}));
    ASSIGN_OR_RETURN(const ValueId wide, b.EmitOne(TensorOp::kExpand, {column, spread}));
    const int64_t flat[] = {-1};
    ASSIGN_OR_RETURN(const ValueId per_channel, ReshapeTo(b, wide, flat));
    inputs.push_back(per_channel);
  }
  ASSIGN_OR_RETURN(Attributes attributes, node.Translated());
  return b.Emit(TensorOp::kGroupNormalization, std::move(inputs), std::move(attributes));
}

// Operator set 10 has x and scales and samples asymmetrically; nearest takes the position below, or where an axis
// shrinks the one above. Later ones have x, roi, scales, sizes, of which an empty tensor means absent.
Result<ValueList> ResizeNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  ASSIGN_OR_RETURN(Attributes attributes, node.Translated());
  if (node.opset < 11) {
    RETURN_IF_ERROR(node.Require(2));
    attributes.Set("coordinate_transformation_mode", "asymmetric");
    attributes.Set("nearest_mode", "ceil_when_shrinking");
    return node.b.Emit(TensorOp::kResize, {node.In(0), kNoValue, node.In(1)}, std::move(attributes));
  }
  ValueList inputs = node.inputs;
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i] == kNoValue) continue;
    const TensorDesc& desc = node.b.Desc(inputs[i]);
    if (desc.has_rank() && desc.rank() == 1 && (*desc.dims)[0] == Dim::Const(0)) inputs[i] = kNoValue;
  }
  if (node.attributes.Text("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize" &&
      inputs.size() > 1) {
    inputs[1] = kNoValue;
  }
  return node.b.Emit(TensorOp::kResize, std::move(inputs), std::move(attributes));
}

namespace {

// Operator set 1 scales height and width of images, sets 7 and 8 have all scales in an attribute; later ones an input.
Result<ValueId> UpsampleScales(NodeContext& node) {
  if (node.opset >= 9) return node.In(1);
  std::vector<float> factors;
  if (node.opset < 7) {
    for (const char* name : {"height_scale", "width_scale"}) {
      if (!node.attributes.Has(name)) {
        return Fail(ErrorCode::kMalformed, "Upsample needs the attribute " + std::string(name));
      }
    }
    factors = {1, 1, static_cast<float>(node.attributes.Float("height_scale", 1)),
               static_cast<float>(node.attributes.Float("width_scale", 1))};
  } else {
    ASSIGN_OR_RETURN(const Attributes all, node.Translated());
    for (const double factor : all.Floats("scales")) factors.push_back(static_cast<float>(factor));
    if (factors.empty()) return Fail(ErrorCode::kMalformed, "Upsample needs the attribute scales");
  }
  return node.b.EmitConstant(
      Tensor::Of<float>(DType::kF32, Dims{static_cast<int64_t>(factors.size())}, std::span<const float>(factors)));
}

}  // namespace

Result<ValueList> UpsampleNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(node.opset < 9 ? 1 : 2));
  const std::string mode = node.attributes.Text("mode", "nearest");
  Attributes attributes;
  attributes.Set("mode", mode == "bilinear" ? std::string("linear") : mode);
  attributes.Set("coordinate_transformation_mode", "asymmetric");
  attributes.Set("nearest_mode", "floor");
  ASSIGN_OR_RETURN(const ValueId scales, UpsampleScales(node));
  const Tensor* known = node.b.ConstantTensor(scales);
  if (known != nullptr && known->dtype() == DType::kF32) {
    for (const float scale : known->values<float>()) {
      if (!(scale >= 1)) {
        return Fail(ErrorCode::kMalformed,
                    "Upsample has the scale " + std::to_string(scale) + "; they are 1 or larger (Resize also shrinks)");
      }
    }
  }
  return node.b.Emit(TensorOp::kResize, {node.In(0), kNoValue, scales}, std::move(attributes));
}

namespace {

// x · sigmoid(alpha x).
Result<ValueId> Swish(NodeContext& node, ValueId x) {
  const double alpha = node.attributes.Float("alpha", 1);
  ValueId scaled = x;
  if (alpha != 1) {
    ASSIGN_OR_RETURN(scaled, node.b.EmitOne(TensorOp::kMul, {x, node.b.EmitScalar(alpha, node.DTypeOf(x))}));
  }
  ASSIGN_OR_RETURN(const ValueId gate, node.b.EmitOne(TensorOp::kSigmoid, {scaled}));
  return node.b.EmitOne(TensorOp::kMul, {x, gate});
}

}  // namespace

// Elements of a block come first in the depth (DCR); in CRD the channels of x do.
Result<ValueList> SpaceToDepthNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  Chain c(node.b);
  const int64_t size = node.attributes.Int("blocksize", 0);
  const ValueId y = c.Do(TensorOp::kSpaceToDepth, {node.In(0)}, "blocksize", size);
  if (node.attributes.Text("mode", "DCR") == "DCR") return c.Done({y});
  const ValueId by_block =
      c.Concat({c.Dim(y, 0), c.Ints({size * size}), c.Dim(node.In(0), 1), c.Dim(y, 2), c.Dim(y, 3)}, 0);
  return c.Done({c.ReshapeTo(c.Transpose(c.ReshapeTo(y, by_block), {0, 2, 1, 3, 4}), c.Shape(y))});
}

Result<ValueList> SwishNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(1));
  ASSIGN_OR_RETURN(const ValueId y, Swish(node, node.In(0)));
  return ValueList{y};
}

// Inputs: gate, value.
Result<ValueList> SwiGluNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  ASSIGN_OR_RETURN(const ValueId gate, Swish(node, node.In(0)));
  return node.b.Emit(TensorOp::kMul, {gate, node.In(1)});
}

}  // namespace kiln::onnx
