// Attributes of one ONNX node, with references to a function's formal attributes resolved.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"

namespace kiln::onnx {

class AttributeProto;
class NodeProto;

// AttributeProto.type
enum class AttributeKind : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kInt = 2,
  kString = 3,
  kTensor = 4,
  kGraph = 5,
  kFloats = 6,
  kInts = 7,
  kStrings = 8,
  kTensors = 9,
  kGraphs = 10,
  kSparseTensor = 11,
  kType = 13,
};

// Actual attributes of the function call that is being inlined; nullptr outside functions.
using AttributeBindings = std::unordered_map<std::string, AttributeProto*>;

// A list of (name, attribute). Borrows the protos; getters return the fallback when the attribute is absent.
class NodeAttributes {
 public:
  // Malformed for duplicates and for an attribute whose type does not fit its content.
  static Result<NodeAttributes> Of(NodeProto& node, const AttributeBindings* bindings);

  AttributeProto* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  int64_t Int(std::string_view name, int64_t fallback) const;
  double Float(std::string_view name, double fallback) const;
  std::string Text(std::string_view name, std::string_view fallback) const;
  std::optional<std::vector<int64_t>> Ints(std::string_view name) const;
  const std::vector<std::pair<std::string, AttributeProto*>>& all() const { return list_; }

 private:
  std::vector<std::pair<std::string, AttributeProto*>> list_;
};

AttributeKind KindOf(const AttributeProto& attribute);

}  // namespace kiln::onnx
