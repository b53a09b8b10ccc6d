#include "common/ops/infer.h"

#include <algorithm>

#include "common/ops/rules/rules.h"

namespace kiln {
namespace {

using Rule = Status (*)(InferContext&);

enum class DTypeRule : uint8_t { kSame, kBool, kI64, kAttr, kRule };

struct RuleRow {
  Rule rule;  // null for ops with regions: whoever walks the regions knows their outputs
  DTypeRule dtype;
};

RuleRow RowOf(TensorOp op) {
  switch (op) {
#define KILN_RULE_Elementwise(name) &rules::name
#define KILN_RULE_Movement(name) &rules::name
#define KILN_RULE_View(name) &rules::name
#define KILN_RULE_Reduction(name) &rules::name
#define KILN_RULE_Contraction(name) &rules::name
#define KILN_RULE_Convolution(name) &rules::name
#define KILN_RULE_Pooling(name) &rules::name
#define KILN_RULE_Normalization(name) &rules::name
#define KILN_RULE_Recurrent(name) &rules::name
#define KILN_RULE_Indexing(name) &rules::name
#define KILN_RULE_Shape(name) &rules::name
#define KILN_RULE_Selection(name) &rules::name
#define KILN_RULE_Quantization(name) &rules::name
#define KILN_RULE_Control(name) nullptr
#define KILN_RULE_Constant(name) &rules::name
#define KILN_RULE_Other(name) &rules::name
#define KILN_TENSOR_OP(value, name, min_in, max_in, min_out, max_out, dtype_rule, effects, family, doc) \
  case TensorOp::k##name:                                                                               \
    return {KILN_RULE_##family(name), DTypeRule::k##dtype_rule};
#include "common/ops/tensor_ops.def"
#undef KILN_TENSOR_OP
  }
  return {nullptr, DTypeRule::kRule};
}

Status CheckArity(const InferContext& context, const TensorOpInfo& info) {
  const int inputs = static_cast<int>(context.inputs.size());
  const int outputs = static_cast<int>(context.outputs.size());
  if (inputs < info.min_inputs || inputs > info.max_inputs) {
    return Fail(ErrorCode::kInvalidArgument, std::string(info.name) + " has " + std::to_string(inputs) +
                                                 " inputs; it takes at least " + std::to_string(info.min_inputs));
  }
  if (outputs < info.min_outputs || outputs > info.max_outputs) {
    return Fail(ErrorCode::kInvalidArgument, std::string(info.name) + " has " + std::to_string(outputs) +
                                                 " outputs; it makes at least " + std::to_string(info.min_outputs));
  }
  for (int i = 0; i < info.min_inputs; ++i) {
    if (context.inputs[static_cast<size_t>(i)] == nullptr) {
      return Fail(ErrorCode::kInvalidArgument,
                  std::string(info.name) + " lacks input " + std::to_string(i) + ", which is not optional");
    }
  }
  return {};
}

// The dtype that the table alone decides; Rule rows set their own.
Status SetTableType(InferContext& context, DTypeRule rule) {
  DType dtype = DType::kF32;
  switch (rule) {
    case DTypeRule::kSame:
      dtype = context.inputs[0]->dtype;
      break;
    case DTypeRule::kBool:
      dtype = DType::kBool;
      break;
    case DTypeRule::kI64:
      dtype = DType::kI64;
      break;
    case DTypeRule::kAttr: {
      const int64_t fallback = static_cast<int64_t>(context.inputs[0]->dtype);
      const int64_t number = context.attributes.Int("to", context.attributes.Int("dtype", fallback));
      const std::optional<DType> named =
          number < 0 || number > 255 ? std::nullopt : DTypeFromNumber(static_cast<int>(number));
      if (!named) {
        return Fail(ErrorCode::kUnsupported, "element type number " + std::to_string(number) + " is not supported");
      }
      dtype = *named;
      break;
    }
    case DTypeRule::kRule:
      return {};
  }
  for (TensorDesc& output : context.outputs) output.dtype = dtype;
  return {};
}

}  // namespace

std::optional<bool> InferContext::Equal(Dim a, Dim b) {
  if (a.is_const() && b.is_const()) return a.value() == b.value();
  if (symbols.ProvenEqual(a, b)) return true;
  if (symbols.ProvenDifferent(a, b)) return false;
  if (policy != UnprovenPolicy::kAssume) return std::nullopt;
  const Result<int64_t> left = symbols.Evaluate(a, hints);
  const Result<int64_t> right = symbols.Evaluate(b, hints);
  if (!left || !right) return std::nullopt;
  const bool equal = *left == *right;
  assumed.push_back({equal ? ConstraintKind::kEqual : ConstraintKind::kNotEqual, a, b});
  return equal;
}

namespace {

// Whether the constraint holds for every legal value, as far as the table tells.
bool IsProven(const SymbolTable& symbols, ConstraintKind kind, Dim left, Dim right) {
  if (left.is_const() && right.is_const()) return Holds(kind, left.value(), right.value());
  const Dim one = Dim::Const(1);
  switch (kind) {
    case ConstraintKind::kEqual:
      return symbols.ProvenEqual(left, right);
    case ConstraintKind::kNotEqual:
      return symbols.ProvenDifferent(left, right);
    case ConstraintKind::kLessEqual:
      return symbols.ProvenEqual(left, right) || symbols.Bounds(left).max <= symbols.Bounds(right).min;
    case ConstraintKind::kDivides:
      if (symbols.Bounds(left).min < 1) return false;
      return symbols.ProvenEqual(left, right) || (left.is_const() && symbols.Divisor(right) % left.value() == 0);
    case ConstraintKind::kBroadcasts:
      return left == one || right == one || symbols.ProvenEqual(left, right);
  }
  return false;
}

}  // namespace

void InferContext::Require(ConstraintKind kind, Dim left, Dim right) const {
  if (required == nullptr) return;
  // "n == 4" reads better than "4 == n".
  const bool swaps = kind == ConstraintKind::kEqual || kind == ConstraintKind::kBroadcasts;
  if (swaps && left.is_const()) std::swap(left, right);
  if (!IsProven(symbols, kind, left, right)) required->push_back({kind, left, right});
}

Result<Dim> InferContext::Broadcast(Dim a, Dim b) {
  if (a == b) return a;
  const Dim one = Dim::Const(1);
  if (a == one) return b;
  if (b == one) return a;
  if (a.is_const() && b.is_const()) {
    return Fail(ErrorCode::kShapeMismatch, "cannot broadcast dim " + std::to_string(a.value()) + " with dim " +
                                               std::to_string(b.value()) + "; they must be equal or one of them 1");
  }
  if (symbols.ProvenEqual(a, b)) return a;
  // A dim that is never 1 decides the result, whatever the other turns out to be.
  const bool a_fixed = symbols.Bounds(a).min > 1 || (a.is_const() && a.value() == 0);
  const bool b_fixed = symbols.Bounds(b).min > 1 || (b.is_const() && b.value() == 0);
  if (policy == UnprovenPolicy::kAssume) {
    const std::optional<bool> a_one = a_fixed ? false : Equal(a, one);
    if (a_one == true) return b;
    const std::optional<bool> b_one = b_fixed ? false : Equal(b, one);
    if (b_one == true) return a;
    const std::optional<bool> same = Equal(a, b);
    if (same == false) {
      return Fail(ErrorCode::kShapeMismatch,
                  "cannot broadcast dim " + symbols.ToString(a) + " with dim " + symbols.ToString(b));
    }
    if (same == true) return b.is_const() ? b : a;
  }
  if (a_fixed && b_fixed && symbols.ProvenDifferent(a, b)) {
    return Fail(ErrorCode::kShapeMismatch,
                "cannot broadcast dim " + symbols.ToString(a) + " with dim " + symbols.ToString(b));
  }
  Require(a_fixed && b_fixed ? ConstraintKind::kEqual : ConstraintKind::kBroadcasts, a, b);
  if (a_fixed) return a;
  if (b_fixed) return b;
  const Interval left = symbols.Bounds(a);
  const Interval right = symbols.Bounds(b);
  return symbols.FreshSymbol({0, std::max(left.max, right.max)});
}

Status InferShapes(InferContext& context) {
  const TensorOpInfo& info = OpInfo(context.op);
  const RuleRow row = RowOf(context.op);
  if (row.rule == nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                "the shapes of " + std::string(info.name) + " follow from its regions, not from a rule");
  }
  RETURN_IF_ERROR(CheckArity(context, info));
  context.known_outputs.assign(context.outputs.size(), std::nullopt);
  for (TensorDesc& output : context.outputs) output.dims.reset();
  RETURN_IF_ERROR(SetTableType(context, row.dtype));
  RETURN_IF_ERROR(row.rule(context));
  for (const TensorDesc& output : context.outputs) {
    if (output.has_rank() && output.rank() > limits::kRankMax) {
      return Fail(ErrorCode::kLimitExceeded, std::string(info.name) + " makes a tensor of rank " +
                                                 std::to_string(output.rank()) + "; at most " +
                                                 std::to_string(limits::kRankMax) + " are supported");
    }
  }
  return {};
}

}  // namespace kiln
