#include "vm-worker/onnx/node_attributes.h"

#include "schemas/onnx.pb.h"

namespace kiln::onnx {
namespace {

bool Is(const AttributeProto* attribute, AttributeKind kind) {
  return attribute != nullptr && KindOf(*attribute) == kind;
}

}  // namespace

// Writers of the first format versions left `type` out: it follows from the field that is set.
AttributeKind KindOf(const AttributeProto& attribute) {
  if (attribute.type() != 0) return static_cast<AttributeKind>(attribute.type());
  if (attribute.has_f()) return AttributeKind::kFloat;
  if (attribute.has_i()) return AttributeKind::kInt;
  if (attribute.has_s()) return AttributeKind::kString;
  if (attribute.has_t()) return AttributeKind::kTensor;
  if (attribute.has_g()) return AttributeKind::kGraph;
  if (attribute.floats_size() > 0) return AttributeKind::kFloats;
  if (attribute.ints_size() > 0) return AttributeKind::kInts;
  if (attribute.strings_size() > 0) return AttributeKind::kStrings;
  return AttributeKind::kUndefined;
}

Result<NodeAttributes> NodeAttributes::Of(NodeProto& node, const AttributeBindings* bindings) {
  NodeAttributes attributes;
  for (AttributeProto& proto : *node.mutable_attribute()) {
    AttributeProto* attribute = &proto;
    if (!proto.ref_attr_name().empty()) {
      if (bindings == nullptr) {
        return Fail(ErrorCode::kMalformed,
                    "attribute '" + proto.name() + "' refers to '" + proto.ref_attr_name() + "' outside a function");
      }
      const auto bound = bindings->find(proto.ref_attr_name());
      if (bound == bindings->end()) continue;  // the caller left an optional attribute out
      attribute = bound->second;
    }
    if (attributes.Has(proto.name())) {
      return Fail(ErrorCode::kMalformed, "attribute '" + proto.name() + "' is given twice");
    }
    attributes.list_.emplace_back(proto.name(), attribute);
  }
  return attributes;
}

AttributeProto* NodeAttributes::Find(std::string_view name) const {
  for (const auto& [key, attribute] : list_) {
    if (key == name) return attribute;
  }
  return nullptr;
}

int64_t NodeAttributes::Int(std::string_view name, int64_t fallback) const {
  const AttributeProto* attribute = Find(name);
  return Is(attribute, AttributeKind::kInt) ? attribute->i() : fallback;
}

double NodeAttributes::Float(std::string_view name, double fallback) const {
  const AttributeProto* attribute = Find(name);
  return Is(attribute, AttributeKind::kFloat) ? attribute->f() : fallback;
}

std::string NodeAttributes::Text(std::string_view name, std::string_view fallback) const {
  const AttributeProto* attribute = Find(name);
  return Is(attribute, AttributeKind::kString) ? attribute->s() : std::string(fallback);
}

std::optional<std::vector<int64_t>> NodeAttributes::Ints(std::string_view name) const {
  const AttributeProto* attribute = Find(name);
  if (!Is(attribute, AttributeKind::kInts)) return std::nullopt;
  return std::vector<int64_t>(attribute->ints().begin(), attribute->ints().end());
}

}  // namespace kiln::onnx
