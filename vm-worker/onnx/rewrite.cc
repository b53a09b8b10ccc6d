#include "vm-worker/onnx/rewrite.h"

#include <unordered_map>

#include "common/ops/attribute_texts.h"
#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/graph_importer.h"

namespace kiln::onnx {
namespace {

constexpr int64_t kAnyOpset = INT64_MAX;

constexpr NodeRule kRules[] = {
#define KILN_ONNX_OP(domain, name, opset_min, opset_max, rewrite, op, attributes) \
  {domain, #name, opset_min, opset_max, &rewrite, TensorOp::k##op, attributes},
#include "vm-worker/onnx/node_rules.def"
#undef KILN_ONNX_OP
};

struct RefusedOp {
  std::string_view domain, op_type, reason;
};
constexpr RefusedOp kRefused[] = {
#define KILN_ONNX_REFUSED(domain, op_type, reason) {domain, op_type, reason},
#include "vm-worker/onnx/refused_ops.def"
#undef KILN_ONNX_REFUSED
};

// A hint about memory of operator sets below 6; it says nothing about results.
constexpr std::string_view kIgnoredAttribute = "consumed_inputs";

std::string RuleKey(std::string_view domain, std::string_view op_type) {
  return std::string(domain) + "/" + std::string(op_type);
}

const std::unordered_map<std::string, std::vector<const NodeRule*>>& RulesByName() {
  static const auto table = [] {
    std::unordered_map<std::string, std::vector<const NodeRule*>> map;
    for (const NodeRule& rule : kRules) map[RuleKey(rule.domain, rule.op_type)].push_back(&rule);
    return map;
  }();
  return table;
}

char KindLetter(AttributeKind kind) {
  switch (kind) {
    case AttributeKind::kFloat:
      return 'f';
    case AttributeKind::kInt:
      return 'i';
    case AttributeKind::kString:
      return 's';
    case AttributeKind::kTensor:
      return 't';
    case AttributeKind::kGraph:
      return 'g';
    case AttributeKind::kFloats:
      return 'F';
    case AttributeKind::kInts:
      return 'I';
    case AttributeKind::kStrings:
      return 'S';
    case AttributeKind::kSparseTensor:
      return 'p';
    case AttributeKind::kType:
      return 'y';
    case AttributeKind::kUndefined:
    case AttributeKind::kTensors:
    case AttributeKind::kGraphs:
      break;
  }
  return '?';
}

// What a row says about an attribute: a kind letter, 0 where it lists none of the name, and the legal texts.
struct Listed {
  char kind = 0;
  std::string_view legal = {};
};
Listed ListedAs(const NodeRule& rule, std::string_view name) {
  std::string_view rest = rule.attributes;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const size_t colon = entry.find(':');
    if (entry.substr(0, colon) != name) continue;
    const std::string_view kind = entry.substr(colon + 1);
    return {kind.front(), kind.size() > 1 ? kind.substr(2) : LegalTexts(rule.op, name)};
  }
  return {};
}

// An empty list has no type of its own in files whose writer left `type` out.
bool SameKind(const AttributeProto& attribute, char listed) {
  const AttributeKind kind = KindOf(attribute);
  return KindLetter(kind) == listed ||
         (kind == AttributeKind::kUndefined && (listed == 'F' || listed == 'I' || listed == 'S'));
}

}  // namespace

std::string_view RefusalReason(std::string_view domain, std::string_view op_type) {
  for (const RefusedOp& refused : kRefused)
    if (refused.domain == domain && (refused.op_type == op_type || refused.op_type == "*")) return refused.reason;
  return {};
}

Result<const NodeRule*> FindNodeRule(std::string_view domain, std::string_view op_type, int64_t opset) {
  const auto found = RulesByName().find(RuleKey(domain, op_type));
  if (found == RulesByName().end()) {
    if (const std::string_view reason = RefusalReason(domain, op_type); !reason.empty())
      return Fail(ErrorCode::kUnsupported, "the operator is not supported: " + std::string(reason));
    return Fail(ErrorCode::kUnsupported,
                std::string("the operator is not supported, and the model has no function of this name") +
                    (domain.empty() ? "" : "; a plug-in may declare it (--plugin)"));
  }
  for (const NodeRule* rule : found->second) {
    if (opset >= rule->opset_min && opset <= rule->opset_max) return rule;
  }
  return Fail(ErrorCode::kUnsupported,
              "the operator's form in operator set " + std::to_string(opset) + " is not supported");
}

Status CheckAttributes(const NodeRule& rule, const NodeAttributes& attributes) {
  for (const auto& [name, attribute] : attributes.all()) {
    if (name == kIgnoredAttribute) continue;
    const auto [listed, legal] = ListedAs(rule, name);
    if (listed == 0) {
      return Fail(ErrorCode::kUnsupported, "attribute '" + name + "' is not known for this operator");
    }
    if (!SameKind(*attribute, listed)) {
      return Fail(ErrorCode::kMalformed, "attribute '" + name + "' has type " + std::to_string(attribute->type()) +
                                             ", which the operator does not take");
    }
    if (listed == 's') RETURN_IF_ERROR(CheckText(legal, name, attribute->s(), false));
    if (listed != 'S') continue;
    for (const std::string& text : attribute->strings()) RETURN_IF_ERROR(CheckText(legal, name, text, true));
  }
  return {};
}

Status NodeContext::Require(size_t count) const {
  for (size_t i = 0; i < count; ++i) {
    if (!Has(i)) return Fail(ErrorCode::kMalformed, "the node lacks its required input " + std::to_string(i));
  }
  return {};
}

Result<Attributes> NodeContext::Translated() const {
  Attributes translated;
  for (const auto& [name, proto] : attributes.all()) {
    if (name == kIgnoredAttribute) continue;
    switch (KindOf(*proto)) {
      case AttributeKind::kFloat:
        translated.Set(name, static_cast<double>(proto->f()));
        break;
      case AttributeKind::kInt:
        translated.Set(name, proto->i());
        break;
      case AttributeKind::kString:
        translated.Set(name, proto->s());
        break;
      case AttributeKind::kFloats:
        translated.Set(name, std::vector<double>(proto->floats().begin(), proto->floats().end()));
        break;
      case AttributeKind::kInts:
        translated.Set(name, std::vector<int64_t>(proto->ints().begin(), proto->ints().end()));
        break;
      case AttributeKind::kStrings:
        translated.Set(name, std::vector<std::string>(proto->strings().begin(), proto->strings().end()));
        break;
      case AttributeKind::kTensor: {
        ASSIGN_OR_RETURN(Tensor tensor, importer.ReadOnce(*proto->mutable_t()));
        translated.Set(name, b.AddConstant(std::move(tensor), name));
        break;
      }
      case AttributeKind::kUndefined:  // an empty list: as if absent
      case AttributeKind::kGraph:      // regions, see control_flow.cc
      case AttributeKind::kTensors:
      case AttributeKind::kGraphs:
      case AttributeKind::kSparseTensor:
      case AttributeKind::kType:
        break;
    }
  }
  return translated;
}

Result<ValueId> ShapeOf(ProgramBuilder& b, ValueId value) {
  return b.EmitOne(TensorOp::kShape, {value});
}

Result<ValueId> DimOf(ProgramBuilder& b, ValueId value, int64_t axis) {
  ASSIGN_OR_RETURN(const ValueId shape, ShapeOf(b, value));
  const int64_t index[] = {axis};
  return b.EmitOne(TensorOp::kGather, {shape, b.EmitInts(index)});
}

Result<ValueId> CastTo(ProgramBuilder& b, ValueId value, DType dtype) {
  if (b.Desc(value).dtype == dtype) return value;
  Attributes attributes;
  attributes.Set("to", static_cast<int64_t>(dtype));
  return b.EmitOne(TensorOp::kCast, {value}, std::move(attributes));
}

Result<ValueId> ReshapeTo(ProgramBuilder& b, ValueId value, std::span<const int64_t> shape) {
  return b.EmitOne(TensorOp::kReshape, {value, b.EmitInts(shape)});
}

Result<ValueId> TransposeBy(ProgramBuilder& b, ValueId value, std::span<const int64_t> perm) {
  Attributes attributes;
  attributes.Set("perm", std::vector<int64_t>(perm.begin(), perm.end()));
  return b.EmitOne(TensorOp::kTranspose, {value}, std::move(attributes));
}

Result<ValueId> ReduceOver(ProgramBuilder& b, TensorOp op, ValueId value, std::span<const int64_t> axes,
                           bool keepdims) {
  Attributes attributes;
  attributes.Set("keepdims", int64_t{keepdims});
  return b.EmitOne(op, {value, b.EmitInts(axes)}, std::move(attributes));
}

}  // namespace kiln::onnx
