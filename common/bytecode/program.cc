#include "common/bytecode/program.h"

#include <algorithm>

namespace kiln {
namespace {

template <class List>
auto Position(List& list, std::string_view name) {
  return std::lower_bound(list.begin(), list.end(), name,
                          [](const Attribute& attribute, std::string_view wanted) { return attribute.name < wanted; });
}

template <class T>
const T* FindAs(const Attributes& attributes, std::string_view name) {
  const AttributeValue* value = attributes.Find(name);
  return value == nullptr ? nullptr : std::get_if<T>(value);
}

template <class T>
std::span<const T> FindList(const Attributes& attributes, std::string_view name) {
  const auto* list = FindAs<std::vector<T>>(attributes, name);
  return list == nullptr ? std::span<const T>() : std::span<const T>(*list);
}

}  // namespace

void Attributes::Set(std::string_view name, AttributeValue value) {
  const auto at = Position(list_, name);
  if (at != list_.end() && at->name == name) {
    at->value = std::move(value);
  } else {
    list_.insert(at, {std::string(name), std::move(value)});
  }
}

const AttributeValue* Attributes::Find(std::string_view name) const {
  const auto at = Position(list_, name);
  return at != list_.end() && at->name == name ? &at->value : nullptr;
}

int64_t Attributes::Int(std::string_view name, int64_t fallback) const {
  const auto* value = FindAs<int64_t>(*this, name);
  return value == nullptr ? fallback : *value;
}
double Attributes::Float(std::string_view name, double fallback) const {
  const auto* value = FindAs<double>(*this, name);
  return value == nullptr ? fallback : *value;
}
std::string_view Attributes::Text(std::string_view name, std::string_view fallback) const {
  const auto* value = FindAs<std::string>(*this, name);
  return value == nullptr ? fallback : std::string_view(*value);
}
std::span<const int64_t> Attributes::Ints(std::string_view name) const {
  return FindList<int64_t>(*this, name);
}
std::span<const double> Attributes::Floats(std::string_view name) const {
  return FindList<double>(*this, name);
}
std::span<const std::string> Attributes::Texts(std::string_view name) const {
  return FindList<std::string>(*this, name);
}
std::span<const Dim> Attributes::Dims(std::string_view name) const {
  return FindList<Dim>(*this, name);
}
ConstantId Attributes::Constant(std::string_view name) const {
  const auto* value = FindAs<ConstantId>(*this, name);
  return value == nullptr ? -1 : *value;
}

const Node* Program::FindRandomNode() const {
  for (const Function& function : functions)
    for (const Region& region : function.regions)
      for (const Node& node : region.nodes)
        if (OpInfo(node.op).effects == OpEffects::kRandom) return &node;
  return nullptr;
}

bool Program::IsImmediate(const Tensor& tensor) {
  return IsInteger(tensor.dtype()) || tensor.dtype() == DType::kBool ||
         tensor.ref.elements() <= static_cast<int64_t>(limits::kImmediateElementsMax);
}

}  // namespace kiln
