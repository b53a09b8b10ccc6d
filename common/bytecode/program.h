// Program: the extended form of a model, and the only form that is serialised, hashed, sent and verified.
//
// A Program has functions; function 0 is the entry. A function owns its values (SSA, dense ids, each defined once: as
// an input of a region or as an output of a node) and a tree of structured regions. Region 0 is the body. A node may
// own regions (If: two, Loop and Scan: one); a region sees the values of the regions around it that were defined before
// its node. Constants belong to the program and enter a function through a `Constant` node's attribute.
//
// Value type; not thread-safe while being edited.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/hash.h"
#include "common/base/result.h"
#include "common/ops/tensor_op.h"
#include "common/shape/symbol_table.h"
#include "common/shape/tensor_desc.h"
#include "common/tensor/tensor.h"

namespace kiln {

using ValueId = int32_t;
using RegionId = int32_t;
using ConstantId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an optional input or output that is absent

// Node attribute. Lists of Dims carry integers that may depend on shapes (folded shape arithmetic).
using AttributeValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                                    std::vector<std::string>, ConstantId, std::vector<Dim>>;
// ConstantId is int32_t, so that the variant alternative is distinct from int64_t.
struct Attribute {
  std::string name;
  AttributeValue value;
  bool operator==(const Attribute&) const = default;
};

// Sorted by name, each name once.
class Attributes {
 public:
  void Set(std::string_view name, AttributeValue value);
  const AttributeValue* Find(std::string_view name) const;
  int64_t Int(std::string_view name, int64_t fallback) const;
  double Float(std::string_view name, double fallback) const;
  std::string_view Text(std::string_view name, std::string_view fallback) const;
  // Empty when absent or of another type.
  std::span<const int64_t> Ints(std::string_view name) const;
  std::span<const double> Floats(std::string_view name) const;
  std::span<const std::string> Texts(std::string_view name) const;
  std::span<const Dim> Dims(std::string_view name) const;
  ConstantId Constant(std::string_view name) const;  // -1 when absent
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  const std::vector<Attribute>& all() const { return list_; }
  bool operator==(const Attributes&) const = default;

 private:
  std::vector<Attribute> list_;
};

struct Node {
  TensorOp op;
  std::string name;             // the source node's, for messages; not part of canonical forms
  std::vector<ValueId> inputs;  // kNoValue where an optional one is absent
  std::vector<ValueId> outputs;
  Attributes attributes;
  std::vector<RegionId> regions;
};

struct Value {
  std::string name;
  TensorDesc desc;
};

struct Region {
  std::vector<ValueId> inputs;  // loop state, or the function's inputs for region 0
  std::vector<Node> nodes;      // in execution order
  std::vector<ValueId> outputs;
};

struct Function {
  std::string name;
  std::vector<Value> values;
  std::vector<Region> regions;  // [0] is the body
};

// Constant data: small ones are immediates (compared by value), others weights that usually lie in a mapped file.
struct Constant {
  std::string name;
  Tensor tensor;  // contiguous
  bool is_immediate = false;
};

struct Program {
  std::string name;
  SymbolTable symbols;
  std::vector<Constant> constants;
  std::vector<Function> functions;

  const Function& entry() const { return functions.front(); }
  // A node that draws random numbers, so that no two runs have the same values; nullptr: there is none.
  const Node* FindRandomNode() const;
  // Whether a constant must be part of canonical forms by value (docs/design.md): integers, or at most
  // kImmediateElementsMax elements.
  static bool IsImmediate(const Tensor& tensor);
};

// Structure and meaning: ids in range, single definition before use, arity and attribute types by the op table, known
// descs, region signatures, sizes and limits of common/base/limits.h. The error names the node and the reason.
Status VerifyProgram(const Program& program);

}  // namespace kiln
