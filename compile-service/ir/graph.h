// Graph: a segment with its shapes bound, between BindShapes and the plan.
//
// One straight line of pure nodes over values whose dims are expressions of the segment's symbols. Compared with a
// Program it is flat, has no names, and knows which values follow from weights and immediates alone (those are computed
// once, when a plan is linked, by prepack recipes). Integer contents known as expressions hang on values, so that
// operands such as Reshape's shape or Slice's starts are read from there.
//
// Value type; not thread-safe while being edited. Passes are `Result<bool> Name(Graph&)`: true when something changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/program.h"

namespace kiln::ir {

using GraphValueId = int32_t;

enum class Origin : uint8_t {
  kInput,      // run-time input `index`
  kWeight,     // weight `index`
  kImmediate,  // immediates[index]
  kNode,       // output `output` of node `index`
};

struct GraphValue {
  DType dtype = DType::kF32;
  std::vector<Dim> dims;
  Origin origin = Origin::kNode;
  int32_t index = -1;
  std::optional<KnownValues> known;  // integer contents, row-major
  // Known once a plan is linked: made of nothing but immediates, and of weights where the plan packs them; dims
  // constant.
  bool prepack = false;

  int rank() const { return static_cast<int>(dims.size()); }
};

struct GraphNode {
  TensorOp op{};
  Attributes attributes;
  std::vector<GraphValueId> inputs;  // -1 absent
  std::vector<GraphValueId> outputs;
  std::vector<int32_t> sources;  // nodes of the segment's body that it stands for
};

// Reductions made by passes carry their axes in attribute `axes` and no second input; all others as in the table of
// ops.
struct Graph {
  SymbolTable symbols;
  std::vector<GraphValue> values;
  std::vector<GraphNode> nodes;  // in dependency order
  std::vector<Tensor> immediates;
  std::vector<Constant> constants;   // of the segment's body, for attributes that name one
  std::vector<GraphValueId> inputs;  // run-time inputs
  std::vector<GraphValueId> weights;
  std::vector<GraphValueId> outputs;

  const GraphValue& value(GraphValueId id) const { return values[static_cast<size_t>(id)]; }
  GraphValue& value(GraphValueId id) { return values[static_cast<size_t>(id)]; }

  GraphValueId AddValue(DType dtype, std::vector<Dim> dims);
  GraphValueId AddImmediate(Tensor tensor);
  GraphValueId AddScalar(float number);

  bool SameDims(const std::vector<Dim>& a, const std::vector<Dim>& b) const;  // proven, rank by rank
  bool IsOne(Dim dim) const { return symbols.ProvenEqual(dim, Dim::Const(1)); }
  Dim Elements(const std::vector<Dim>& dims);  // product
  // The one element of an f32 immediate, or of a broadcast one whose elements are all equal.
  std::optional<float> ScalarOf(GraphValueId id) const;
  // Recomputes `origin` and `index` of node outputs after nodes moved.
  void Renumber();
};

// Ids in range, one definition before use, outputs reachable, ranks within limits. The error names the node.
Status VerifyGraph(const Graph& graph);
std::string PrintGraph(const Graph& graph);

// Reduced dims of a reduction node, ascending; nullopt when they are only known at run time.
std::optional<std::vector<int>> ReduceAxes(const Graph& graph, const GraphNode& node);
// Whether a <= b follows from bounds or is one of the constraints.
bool IsAtMost(const SymbolTable& symbols, Dim a, Dim b);
// An `axis` attribute as a non-negative dim of a tensor of `rank`.
int NormalAxis(int64_t axis, int rank);

}  // namespace kiln::ir
