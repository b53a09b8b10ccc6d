// Operators with a state that the model passes on, as their function bodies define them.
#include "vm-worker/onnx/chain.h"
#include "vm-worker/onnx/rewrite.h"

namespace kiln::onnx {
// Inputs: x [batch, channels, length], weight [channels, 1, k], bias, state [batch, channels, k - 1]. The state, or
// zeros, lies before x; its last k - 1 positions are the next state.
Result<ValueList> CausalConvWithStateNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(2));
  Chain c(node.b);
  const ValueId x = node.In(0), weight = node.In(1);
  const DType dtype = node.DTypeOf(x);
  if (node.RankOf(x) != 3 || node.RankOf(weight) != 3)
    return Fail(ErrorCode::kUnsupported, "x and the weight need a known rank of 3");
  const std::string activation = node.attributes.Text("activation", "none");
  const ValueId kept = c.Sub(c.Dim(weight, 2), c.Ints({1}));
  ValueId whole = kNoValue;
  if (node.Has(3)) {
    whole = c.Concat({node.In(3), x}, 2);
  } else {
    const ValueId pads = c.Concat({kept, c.Ints({0})}, 0);
    whole = c.Do(TensorOp::kPad, {x, pads, kNoValue, c.Ints({2})}, "mode", std::string("constant"));
  }
  // Every channel is its own group. A generated kernel is made where their number is known.
  const kiln::Dim channels = (*node.b.Desc(weight).dims)[0];
  ValueList operands = {whole, weight};
  if (node.Has(2)) operands.push_back(node.In(2));
  ValueId y = channels.is_const() ? c.Do(TensorOp::kConv, std::move(operands), "group", channels.value())
                                  : c.Do(TensorOp::kConv, std::move(operands), "depthwise", int64_t{1});
  if (activation != "none") {
    const ValueId wide = c.Cast(y, DType::kF32);
    y = c.Cast(c.Mul(wide, c.Do(TensorOp::kSigmoid, {wide})), dtype);
  }
  const ValueId end = c.Dim(whole, 2);
  const ValueId state = c.Do(TensorOp::kSlice, {whole, c.Sub(end, kept), end, c.Ints({2})});
  return c.Done({y, state});
}

namespace {

enum class UpdateRule : uint8_t { kLinear, kGated, kDelta, kGatedDelta };

// The row of the operator lists the names.
UpdateRule UpdateRuleOf(const NodeContext& node) {
  const std::string rule = node.attributes.Text("update_rule", "gated_delta");
  if (rule == "linear") return UpdateRule::kLinear;
  if (rule == "gated") return UpdateRule::kGated;
  if (rule == "delta") return UpdateRule::kDelta;
  return UpdateRule::kGatedDelta;
}

// A Scan over time whose state is [batch, heads, key size, value size] in f32.
class LinearAttention {
 public:
  LinearAttention(NodeContext& node, UpdateRule rule) : node_(node), c_(node.b), rule_(rule) {}

  Result<ValueList> Emit() {
    q_heads_ = node_.attributes.Int("q_num_heads", 0);
    heads_ = node_.attributes.Int("kv_num_heads", 0);
    if (heads_ < 1 || q_heads_ < heads_ || q_heads_ % heads_ != 0)
      return Fail(ErrorCode::kMalformed, "q_num_heads is " + std::to_string(q_heads_) + ", kv_num_heads " +
                                             std::to_string(heads_) + "; the first is a multiple of the second");
    for (const size_t i : {size_t{0}, size_t{1}, size_t{2}, size_t{4}, size_t{5}})
      if (node_.Has(i) && node_.RankOf(node_.In(i)) != 3)
        return Fail(ErrorCode::kUnsupported, "input " + std::to_string(i) + " needs a known rank of 3");
    if (decays() != node_.Has(4) || corrects() != node_.Has(5))
      return Fail(ErrorCode::kMalformed, "decay and beta do not fit update_rule");
    const ValueId query = node_.In(0);
    batch_ = c_.Dim(query, 0);
    time_ = c_.Dim(query, 1);
    key_size_ = c_.Div(c_.Dim(query, 2), c_.Ints({q_heads_}));
    value_size_ = c_.Div(c_.Dim(node_.In(2), 2), c_.Ints({heads_}));
    state_shape_ = c_.Concat({batch_, c_.Ints({heads_}), key_size_, value_size_}, 0);
    ASSIGN_OR_RETURN(const ValueList results, EmitScan());
    const ValueId out_shape = c_.Concat({batch_, time_, c_.Mul(value_size_, c_.Ints({q_heads_}))}, 0);
    const ValueId out = c_.ReshapeTo(results[1], out_shape);
    const DType state_type = node_.DTypeOf(node_.In(node_.Has(3) ? 3 : 0));
    return c_.Done({c_.Cast(out, node_.DTypeOf(query)), c_.Cast(results[0], state_type)});
  }

 private:
  bool decays() const { return rule_ == UpdateRule::kGated || rule_ == UpdateRule::kGatedDelta; }
  bool corrects() const { return rule_ == UpdateRule::kDelta || rule_ == UpdateRule::kGatedDelta; }

  // [batch, time, n × size] as [batch, time, n, size] in f32, sizes as the query has them.
  ValueId ByHeads(size_t input, ValueId heads, ValueId size) {
    const ValueId shape = c_.Concat({batch_, time_, heads, size}, 0);
    return c_.Cast(c_.ReshapeTo(node_.In(input), shape), DType::kF32);
  }

  Result<ValueList> EmitScan() {
    const ValueId heads = c_.Ints({heads_});
    const ValueId zeros = c_.Do(TensorOp::kConstantOfShape, {state_shape_});
    const ValueId past = node_.Has(3) ? c_.Cast(c_.ReshapeTo(node_.In(3), state_shape_), DType::kF32) : zeros;
    // Query heads that share a key head lie side by side: [batch, time, heads, group × key size].
    const ValueId group_size = c_.Mul(key_size_, c_.Ints({q_heads_ / heads_}));
    ValueList inputs = {past, ByHeads(0, heads, group_size), ByHeads(1, heads, key_size_),
                        ByHeads(2, heads, value_size_)};
    if (decays()) inputs.push_back(ByHeads(4, heads, c_.Div(c_.Dim(node_.In(4), 2), heads)));
    if (corrects()) inputs.push_back(ByHeads(5, c_.Dim(node_.In(5), 2), c_.Ints({1})));
    RETURN_IF_ERROR(c_.Done({}));
    std::vector<TensorDesc> slices;
    for (size_t i = 0; i < inputs.size(); ++i) {
      TensorDesc desc = node_.b.Desc(inputs[i]);
      if (i > 0 && desc.has_rank() && desc.rank() > 1) desc.dims->erase(desc.dims->begin() + 1);
      slices.push_back(std::move(desc));
    }
    const RegionId region = node_.b.OpenRegion();
    ValueList in;
    for (TensorDesc& slice : slices) in.push_back(node_.b.AddRegionInput("", std::move(slice)));
    ASSIGN_OR_RETURN(ValueList out, c_.Done(Step(in)));
    ASSIGN_OR_RETURN(out, node_.b.CloseRegion(std::move(out)));
    // [batch, heads, group, value size] of every moment, side by side along time.
    TensorDesc rows{.dtype = DType::kF32, .dims = node_.b.Desc(out[1]).dims};
    const TensorDesc& queries = node_.b.Desc(inputs[1]);
    if (rows.has_rank() && rows.rank() >= 1 && queries.has_rank() && queries.rank() > 1)
      rows.dims->insert(rows.dims->begin() + 1, (*queries.dims)[1]);
    else
      rows.dims.reset();
    const std::vector<int64_t> along_time(inputs.size() - 1, 1), forwards(inputs.size() - 1, 0);
    Attributes attributes;
    attributes.Set("num_scan_inputs", static_cast<int64_t>(inputs.size() - 1));
    attributes.Set("scan_input_axes", along_time);
    attributes.Set("scan_input_directions", forwards);
    attributes.Set("scan_output_axes", std::vector<int64_t>{1});
    attributes.Set("scan_output_directions", std::vector<int64_t>{0});
    std::vector<TensorDesc> descs = {node_.b.Desc(out[0]), std::move(rows)};
    return node_.b.EmitControl(TensorOp::kScan, std::move(inputs), std::move(attributes), {region}, std::move(descs));
  }

  // State and slices of one moment: query [batch, heads, group × key size], key, value, decay, beta.
  ValueList Step(const ValueList& in) {
    ValueId state = in[0];
    if (decays()) state = c_.Mul(state, c_.Unsqueeze(c_.Do(TensorOp::kExp, {in[4]}), {3}));
    const ValueId key = c_.Unsqueeze(in[2], {3});
    ValueId write = in[3];
    if (corrects()) {
      const ValueId read = c_.Do(TensorOp::kMatMul, {c_.Unsqueeze(in[2], {2}), state});
      write = c_.Mul(in.back(), c_.Sub(write, c_.Squeeze(read, {2})));
    }
    state = c_.Add(state, c_.Mul(key, c_.Unsqueeze(write, {2})));
    state = c_.ReshapeTo(state, state_shape_);
    const ValueId heads = c_.Ints({heads_});
    const ValueId query_shape = c_.Concat({batch_, heads, c_.Ints({q_heads_ / heads_}), key_size_}, 0);
    const ValueId rows = c_.Do(TensorOp::kMatMul, {c_.ReshapeTo(in[1], query_shape), state});
    return {state, c_.Mul(rows, Scale())};
  }

  ValueId Scale() {
    const double given = node_.attributes.Float("scale", 0);
    if (given != 0) return c_.Scalar(given, DType::kF32);
    const ValueId size = c_.Cast(c_.Squeeze(key_size_, {0}), DType::kF32);
    return c_.Do(TensorOp::kReciprocal, {c_.Do(TensorOp::kSqrt, {size})});
  }

  NodeContext& node_;
  Chain c_;
  const UpdateRule rule_;
  int64_t q_heads_ = 0, heads_ = 0;
  ValueId batch_ = kNoValue, time_ = kNoValue, key_size_ = kNoValue, value_size_ = kNoValue, state_shape_ = kNoValue;
};

}  // namespace

// Inputs: query, key, value, past state, decay, beta. Outputs: [batch, time, heads × value size], state.
Result<ValueList> LinearAttentionNode(NodeContext& node) {
  RETURN_IF_ERROR(node.Require(3));
  return LinearAttention(node, UpdateRuleOf(node)).Emit();
}

}  // namespace kiln::onnx
