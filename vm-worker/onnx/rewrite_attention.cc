// Attention and RotaryEmbedding, as the operators' function bodies define them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "vm-worker/onnx/chain.h"
#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {
namespace {

constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();
constexpr int64_t kWindowMax = int64_t{1} << 40;  // more than any tensor has keys; sums with positions stay in range
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// [batch, length, heads * size] as [batch, length, heads, size]. The sizes are computed: no -1 can stand for one beside
// a batch or length of 0.
ValueId SplitHeads(Chain& c, ValueId value, int64_t heads) {
  const ValueId count = c.Ints({heads});
  const ValueId size = c.Div(c.Dim(value, 2), count);
  return c.ReshapeTo(value, c.Concat({c.Dim(value, 0), c.Dim(value, 1), count, size}, 0));
}

// [batch, length, heads * size] or [batch, heads, length, size], as the latter.
Result<ValueId> ByHeads(NodeContext& node, Chain& chain, ValueId value, std::string_view heads_attribute) {
  const int rank = node.RankOf(value);
  if (rank == 4) return value;
  const int64_t heads = node.attributes.Int(heads_attribute, 0);
  if (rank != 3 || heads < 1) {
    return Fail(ErrorCode::kUnsupported,
                "inputs must have a known rank of 4, or of 3 with " + std::string(heads_attribute));
  }
  return chain.Transpose(SplitHeads(chain, value, heads), {0, 2, 1, 3});
}

// Each key and value head serves a group of query heads: repeated, so that head counts agree.
ValueId PerQueryHead(Chain& c, ValueId value, ValueId query) {
  const ValueId heads = c.Dim(value, 1);
  const ValueId group = c.Div(c.Dim(query, 1), heads);
  const ValueId wide = c.Concat({c.Dim(value, 0), heads, group, c.Dim(value, 2), c.Dim(value, 3)}, 0);
  const ValueId spread = c.Do(TensorOp::kExpand, {c.Unsqueeze(value, {2}), wide});
  return c.ReshapeTo(spread, c.Concat({c.Dim(value, 0), c.Dim(query, 1), c.Dim(value, 2), c.Dim(value, 3)}, 0));
}

// The sum of mask, causal bound and padding as a bias on the scores, or kNoValue where nothing is masked.
class AttentionBias {
 public:
  AttentionBias(NodeContext& node, Chain& chain, DType dtype) : node_(node), c_(chain), dtype_(dtype) {
    zero_ = c_.Scalar(0, dtype);
    minus_infinity_ = c_.Scalar(kMinusInfinity, dtype);
  }

  ValueId Build(ValueId query, ValueId keys) {
    ValueId bias = node_.Has(3) ? Mask(node_.In(3), keys) : kNoValue;
    bias = Bounds(bias, query, keys);
    if (node_.Has(6)) bias = Sum(bias, Padding(keys));
    return bias;
  }

  // Of what belongs to queries by rows: zeros in the rows whose every key `bias` masks, where a softmax gives NaN.
  // Bounds on the right alone leave every query the first key; one on the left lets queries run past the last.
  ValueId WithoutMaskedRows(ValueId rows, ValueId bias) {
    if (!node_.Has(3) && !node_.Has(6) && node_.attributes.Int("left_window_size", -1) < 0) return rows;
    const ValueId largest = c_.Reduce(TensorOp::kReduceMax, bias, {-1}, true);
    return c_.Where(c_.Do(TensorOp::kEqual, {largest, minus_infinity_}), zero_, rows);
  }

 private:
  ValueId Sum(ValueId a, ValueId b) { return a == kNoValue ? b : c_.Add(a, b); }
  ValueId MinusInfinityWhere(ValueId condition) { return c_.Where(condition, minus_infinity_, zero_); }

  // A mask may be shorter than the keys: the rest is masked.
  ValueId Mask(ValueId mask, ValueId keys) {
    ValueId bias = c_.TypeOf(mask) == DType::kBool ? c_.Where(mask, zero_, minus_infinity_) : c_.Cast(mask, dtype_);
    if (node_.opset < 24) return bias;
    const ValueId missing = c_.Sub(c_.Dim(keys, 2), c_.Dim(mask, node_.RankOf(mask) - 1));
    const ValueId pads = c_.Concat({c_.Ints({0}), missing}, 0);
    return c_.Do(TensorOp::kPad, {bias, pads, minus_infinity_, c_.Ints({-1})}, "mode", std::string("constant"));
  }

  // Where the queries stand among the keys, as a column: i plus the offset, which is what came before, or per batch
  // entry what is not padding.
  ValueId Positions(ValueId query) {
    const ValueId rows = c_.Unsqueeze(c_.Count(c_.ScalarDim(query, 2)), {1});
    if (node_.Has(6)) {
      const ValueId offset = c_.Sub(c_.Cast(node_.In(6), DType::kI64), c_.Dim(query, 2));
      return c_.Add(rows, c_.Unsqueeze(offset, {1, 2, 3}));
    }
    return node_.Has(4) ? c_.Add(rows, c_.Dim(node_.In(4), 2)) : rows;
  }

  // A query sees keys up to its position (causal), and those within the windows beside it.
  ValueId Bounds(ValueId bias, ValueId query, ValueId keys) {
    const bool causal = node_.attributes.Int("is_causal", 0) != 0;
    const int64_t left = std::min(node_.attributes.Int("left_window_size", -1), kWindowMax);
    int64_t right = std::min(node_.attributes.Int("right_window_size", -1), kWindowMax);
    if (causal) right = 0;
    if (left < 0 && right < 0) return bias;
    const ValueId positions = Positions(query);
    const ValueId columns = c_.Unsqueeze(c_.Count(c_.ScalarDim(keys, 2)), {0});
    const auto shifted = [&](int64_t by) { return by == 0 ? positions : c_.Add(positions, c_.Ints({by})); };
    if (right >= 0) bias = Sum(bias, MinusInfinityWhere(c_.Do(TensorOp::kLess, {shifted(right), columns})));
    if (left >= 0) bias = Sum(bias, MinusInfinityWhere(c_.Do(TensorOp::kLess, {columns, shifted(-left)})));
    return bias;
  }

  ValueId Padding(ValueId keys) {
    const ValueId columns = c_.Count(c_.ScalarDim(keys, 2));
    const ValueId lengths = c_.Unsqueeze(c_.Cast(node_.In(6), DType::kI64), {1, 2, 3});
    return MinusInfinityWhere(c_.Do(TensorOp::kGreaterOrEqual, {columns, lengths}));
  }

  NodeContext& node_;
  Chain& c_;
  DType dtype_;
  ValueId zero_;
  ValueId minus_infinity_;
};

// Square root of the scale, given or 1 / sqrt(head size).
ValueId ScaleRoot(NodeContext& node, Chain& c, ValueId query, DType dtype) {
  if (node.attributes.Has("scale")) return c.Scalar(std::sqrt(node.attributes.Float("scale", 1)), dtype);
  const ValueId size = c.Cast(c.ScalarDim(query, 3), DType::kF32);
  const ValueId root = c.Do(TensorOp::kSqrt, {c.Do(TensorOp::kReciprocal, {c.Do(TensorOp::kSqrt, {size})})});
  return c.Cast(root, dtype);
}

}  // namespace

// Inputs: Q, K, V, mask, past key, past value, lengths without padding. Outputs: Y, present key, present value, scores.
Result<ValueList> AttentionNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(3));
  Chain c(node.b);
  const DType dtype = node.DTypeOf(node.In(0));
  ASSIGN_OR_RETURN(const ValueId query, ByHeads(node, c, node.In(0), "q_num_heads"));
  ASSIGN_OR_RETURN(ValueId keys, ByHeads(node, c, node.In(1), "kv_num_heads"));
  ASSIGN_OR_RETURN(ValueId values, ByHeads(node, c, node.In(2), "kv_num_heads"));
  if (node.Has(4) != node.Has(5)) return Fail(ErrorCode::kMalformed, "past key and past value come together");
  if (node.Has(3) && node.RankOf(node.In(3)) < 1) return Fail(ErrorCode::kUnsupported, "the mask needs a known rank");
  for (const char* window : {"left_window_size", "right_window_size"}) {
    if (const int64_t size = node.attributes.Int(window, -1); size < -1) {
      return Fail(ErrorCode::kMalformed, std::string(window) + " is " + std::to_string(size) + "; it is at least -1");
    }
  }
  if (node.Has(4)) {
    keys = c.Concat({node.In(4), keys}, 2);
    values = c.Concat({node.In(5), values}, 2);
  }
  ValueList outputs = {kNoValue, keys, values, kNoValue};
  AttentionBias masking(node, c, dtype);
  const ValueId bias = masking.Build(query, keys);
  const ValueId root = ScaleRoot(node, c, query, dtype);
  const ValueId left = c.Mul(query, root);
  const ValueId right = c.Mul(c.Transpose(PerQueryHead(c, keys, query), {0, 1, 3, 2}), root);
  ValueId scores = c.Do(TensorOp::kMatMul, {left, right});
  ValueList stages = {scores};  // by qk_matmul_output_mode
  if (const double cap = node.attributes.Float("softcap", 0); cap != 0) {
    const ValueId limit = c.Scalar(cap, dtype);
    scores = c.Mul(c.Do(TensorOp::kTanh, {c.Div(scores, limit)}), limit);
  }
  stages.push_back(scores);
  if (bias != kNoValue) scores = c.Add(scores, bias);
  stages.push_back(scores);
  const int64_t precision = node.attributes.Int("softmax_precision", static_cast<int64_t>(dtype));
  const std::optional<DType> softmax_dtype =
      precision < 0 || precision > 255 ? std::nullopt : DTypeFromNumber(static_cast<int>(precision));
  if (!softmax_dtype || !IsFloat(*softmax_dtype))
    return Fail(ErrorCode::kMalformed, "softmax_precision is not a float type");
  const int64_t mode = node.attributes.Int("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) return Fail(ErrorCode::kMalformed, "qk_matmul_output_mode is " + std::to_string(mode));
  ValueId weights = c.Cast(c.Do(TensorOp::kSoftmax, {c.Cast(scores, *softmax_dtype)}, "axis", int64_t{-1}), dtype);
  // Weights that nobody asked for stay as they are, so that one kernel can make them and use them up.
  const bool weights_wanted = node.outputs > 3 && mode == 3;
  if (weights_wanted) weights = masking.WithoutMaskedRows(weights, bias);
  stages.push_back(weights);
  ValueId y = c.Do(TensorOp::kMatMul, {weights, PerQueryHead(c, values, query)});
  if (!weights_wanted) y = masking.WithoutMaskedRows(y, bias);
  if (node.RankOf(node.In(0)) == 3) {
    const ValueId width = c.Mul(c.Dim(y, 1), c.Dim(y, 3));
    y = c.ReshapeTo(c.Transpose(y, {0, 2, 1, 3}), c.Concat({c.Dim(y, 0), c.Dim(y, 2), width}, 0));
  }
  outputs[0] = y;
  outputs[3] = stages[static_cast<size_t>(mode)];
  return c.Done(std::move(outputs));
}

// Inputs: x, cos cache, sin cache, position ids. The first `rotary_embedding_dim` elements of each head turn in pairs.
Result<ValueList> RotaryEmbeddingNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(3));
  Chain c(node.b);
  const int rank = node.RankOf(node.In(0));
  const int64_t heads = node.attributes.Int("num_heads", 0);
  if (rank != 4 && (rank != 3 || heads < 1)) {
    return Fail(ErrorCode::kUnsupported, "x must have a known rank of 4, or of 3 with num_heads");
  }
  // [batch, length, heads, size]
  const ValueId x = rank == 4 ? c.Transpose(node.In(0), {0, 2, 1, 3}) : SplitHeads(c, node.In(0), heads);
  const int64_t dim = node.attributes.Int("rotary_embedding_dim", 0);
  const ValueId rotary = dim > 0 ? c.Slice(x, 3, 0, dim) : x;
  const auto angles = [&](size_t i) {
    const ValueId cache =
        node.Has(3) ? c.Do(TensorOp::kGather, {node.In(i), node.In(3)}, "axis", int64_t{0}) : node.In(i);
    return c.Unsqueeze(cache, {2});
  };
  const ValueId cosine = angles(1);
  const ValueId sine = angles(2);
  const bool interleaved = node.attributes.Int("interleaved", 0) != 0;
  ValueId first = kNoValue;
  ValueId second = kNoValue;
  if (interleaved) {
    first = c.Slice(rotary, 3, 0, kToTheEnd, 2);
    second = c.Slice(rotary, 3, 1, kToTheEnd, 2);
  } else {
    Attributes along;
    along.Set("axis", int64_t{3});
    const auto halves = node.b.Emit(TensorOp::kSplit, {rotary}, along, 2);
    if (!halves.has_value()) return std::unexpected(halves.error());
    first = (*halves)[0];
    second = (*halves)[1];
  }
  const ValueId real = c.Sub(c.Mul(cosine, first), c.Mul(sine, second));
  const ValueId imaginary = c.Add(c.Mul(sine, first), c.Mul(cosine, second));
  ValueId result =
      interleaved ? c.ReshapeTo(c.Concat({c.Unsqueeze(real, {4}), c.Unsqueeze(imaginary, {4})}, 4), c.Shape(rotary))
                  : c.Concat({real, imaginary}, 3);
  if (dim > 0) result = c.Concat({result, c.Slice(x, 3, dim, kToTheEnd)}, 3);
  result = rank == 4 ? c.Transpose(result, {0, 2, 1, 3}) : c.ReshapeTo(result, c.Shape(node.In(0)));
  return c.Done({result});
}

}  // namespace kiln::onnx
