// Losses, windows and crops, in terms of the op table.
#include <numbers>

#include "vm-worker/onnx/chain.h"
#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {
namespace {

// scores [N, C, d…] are log-probabilities; labels [N, d…]; weights [C] or kNoValue.
Result<ValueId> NegativeLogLikelihood(NodeContext& node, Chain& c, ValueId scores, ValueId labels, ValueId weights) {
  const DType dtype = c.TypeOf(scores);
  ValueId ignored = kNoValue;
  if (node.attributes.Has("ignore_index")) {
    const DType label_type = c.TypeOf(labels);
    const ValueId index = c.Scalar(static_cast<double>(node.attributes.Int("ignore_index", 0)), label_type);
    ignored = c.Do(TensorOp::kEqual, {labels, index});
    labels = c.Where(ignored, c.Scalar(0, label_type), labels);
  }
  const ValueId picked = c.Do(TensorOp::kGatherElements, {scores, c.Unsqueeze(labels, {1})}, "axis", int64_t{1});
  ValueId loss = c.Do(TensorOp::kNeg, {c.Squeeze(picked, {1})});
  ValueId weight = weights == kNoValue ? kNoValue : c.Do(TensorOp::kGather, {weights, labels}, "axis", int64_t{0});
  if (ignored != kNoValue) {
    weight = c.Where(ignored, c.Scalar(0, dtype), weight == kNoValue ? c.Scalar(1, dtype) : weight);
  }
  if (weight != kNoValue) loss = c.Mul(loss, weight);
  const std::string reduction = node.attributes.Text("reduction", "mean");
  if (reduction == "none") return loss;
  if (reduction == "mean" && weight == kNoValue) return c.Reduce(TensorOp::kReduceMean, loss, {}, false);
  const ValueId sum = c.Reduce(TensorOp::kReduceSum, loss, {}, false);
  return reduction == "sum" ? sum : c.Div(sum, c.Reduce(TensorOp::kReduceSum, weight, {}, false));
}

}  // namespace

Result<ValueList> NegativeLogLikelihoodLossNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  Chain c(node.b);
  ASSIGN_OR_RETURN(const ValueId loss, NegativeLogLikelihood(node, c, node.In(0), node.In(1), node.In(2)));
  return c.Done({loss});
}

// The second output, where wanted, holds the log-probabilities.
Result<ValueList> SoftmaxCrossEntropyLossNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  Chain c(node.b);
  const ValueId log_probability = c.Do(TensorOp::kLogSoftmax, {node.In(0)}, "axis", int64_t{1});
  ASSIGN_OR_RETURN(const ValueId loss, NegativeLogLikelihood(node, c, log_probability, node.In(1), node.In(2)));
  return c.Done({loss, log_probability});
}

namespace {

// a0 - a1 cos(t) + a2 cos(2t), t = 2 pi i / N, where N is the length, or one less for a symmetric window.
Result<ValueList> CosineWindow(NodeContext& node, double a0, double a1, double a2) {
  RETURN_IF_ERROR(node.Require(1));
  Chain c(node.b);
  const int64_t number = node.attributes.Int("output_datatype", static_cast<int64_t>(DType::kF32));
  const std::optional<DType> dtype =
      number < 0 || number > 255 ? std::nullopt : DTypeFromNumber(static_cast<int>(number));
  if (!dtype) return Fail(ErrorCode::kUnsupported, "output_datatype " + std::to_string(number) + " is not supported");
  const auto scalar = [&](double value) { return c.Scalar(value, DType::kF32); };
  const ValueId length = c.Cast(node.In(0), DType::kF32);
  const ValueId period = node.attributes.Int("periodic", 1) != 0 ? length : c.Sub(length, scalar(1));
  const ValueId index = c.Do(TensorOp::kRange, {scalar(0), length, scalar(1)});
  const ValueId angle = c.Mul(index, c.Div(scalar(2 * std::numbers::pi), period));
  ValueId window = c.Sub(scalar(a0), c.Mul(scalar(a1), c.Do(TensorOp::kCos, {angle})));
  if (a2 != 0) {
    const ValueId doubled = c.Do(TensorOp::kCos, {c.Mul(angle, scalar(2))});
    window = c.Add(window, c.Mul(scalar(a2), doubled));
  }
  return c.Done({c.Cast(window, *dtype)});
}

}  // namespace

Result<ValueList> HannWindowNode(NodeContext& node) {
  return CosineWindow(node, 0.5, 0.5, 0);
}
Result<ValueList> HammingWindowNode(NodeContext& node) {
  return CosineWindow(node, 25.0 / 46.0, 21.0 / 46.0, 0);
}
Result<ValueList> BlackmanWindowNode(NodeContext& node) {
  return CosineWindow(node, 0.42, 0.5, 0.08);
}

// Crops what is too long and pads what is too short, half on each side; an odd rest goes behind (crop: in front of the
// end).
Result<ValueList> CenterCropPadNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  const ValueId x = node.In(0);
  const int rank = node.RankOf(x);
  if (rank < 0) return Fail(ErrorCode::kUnsupported, "x needs a known rank");
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  if (const auto given = node.attributes.Ints("axes")) axes = *given;
  Chain c(node.b);
  const ValueId two = c.Ints({2});
  const ValueId zero = c.Ints({0});
  const ValueId wanted = node.In(1);
  const ValueId present = c.Do(TensorOp::kGather, {c.Shape(x), c.Ints(axes)}, "axis", int64_t{0});
  const ValueId excess = c.Do(TensorOp::kMax, {c.Sub(present, wanted), zero});
  const ValueId start = c.Div(excess, two);
  const ValueId kept = c.Do(TensorOp::kMin, {present, wanted});
  const ValueId cropped = c.Do(TensorOp::kSlice, {x, start, c.Add(start, kept), c.Ints(axes)});
  const ValueId lack = c.Do(TensorOp::kMax, {c.Sub(wanted, present), zero});
  const ValueId before = c.Div(lack, two);
  const ValueId pads = c.Concat({before, c.Sub(lack, before)}, 0);
  const ValueId padded = c.Do(TensorOp::kPad, {cropped, pads, kNoValue, c.Ints(axes)}, "mode", std::string("constant"));
  return c.Done({padded});
}

}  // namespace kiln::onnx
