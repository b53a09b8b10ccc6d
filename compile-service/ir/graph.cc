#include "compile-service/ir/graph.h"

#include <algorithm>

#include "common/base/limits.h"

namespace kiln::ir {

GraphValueId Graph::AddValue(DType dtype, std::vector<Dim> dims) {
  GraphValue value;
  value.dtype = dtype;
  value.dims = std::move(dims);
  values.push_back(std::move(value));
  return static_cast<GraphValueId>(values.size() - 1);
}

GraphValueId Graph::AddImmediate(Tensor tensor) {
  std::vector<Dim> dims;
  for (int64_t extent : tensor.dims()) dims.push_back(Dim::Const(extent));
  const GraphValueId id = AddValue(tensor.dtype(), std::move(dims));
  value(id).origin = Origin::kImmediate;
  value(id).index = static_cast<int32_t>(immediates.size());
  value(id).prepack = true;
  immediates.push_back(std::move(tensor));
  return id;
}

GraphValueId Graph::AddScalar(float number) {
  return AddImmediate(Tensor::Of<float>(DType::kF32, Dims{}, std::span<const float>(&number, 1)));
}

bool Graph::SameDims(const std::vector<Dim>& a, const std::vector<Dim>& b) const {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!symbols.ProvenEqual(a[i], b[i])) return false;
  }
  return true;
}

Dim Graph::Elements(const std::vector<Dim>& dims) {
  Dim product = Dim::Const(1);
  for (Dim dim : dims) product = symbols.Mul(product, dim);
  return product;
}

std::optional<float> Graph::ScalarOf(GraphValueId id) const {
  if (id < 0) return std::nullopt;
  const GraphValue& v = value(id);
  if (v.origin != Origin::kImmediate || v.dtype != DType::kF32) return std::nullopt;
  const Tensor& tensor = immediates[static_cast<size_t>(v.index)];
  const std::span<float> numbers = tensor.values<float>();
  if (numbers.empty()) return std::nullopt;
  for (float number : numbers) {
    if (!(number == numbers[0])) return std::nullopt;
  }
  return numbers[0];
}

void Graph::Renumber() {
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (GraphValueId output : nodes[n].outputs) {
      if (output < 0) continue;
      value(output).origin = Origin::kNode;
      value(output).index = static_cast<int32_t>(n);
    }
  }
}

Status VerifyGraph(const Graph& graph) {
  std::vector<bool> defined(graph.values.size(), false);
  const auto bad = [](size_t node, const std::string& what) {
    return Fail(ErrorCode::kInternal, "graph node " + std::to_string(node) + " " + what);
  };
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].origin != Origin::kNode) defined[v] = true;
    if (graph.values[v].dims.size() > limits::kRankMax) {
      return Fail(ErrorCode::kInternal, "graph value " + std::to_string(v) + " has too many dims");
    }
  }
  const auto in_range = [&](GraphValueId id) { return id >= 0 && static_cast<size_t>(id) < graph.values.size(); };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const GraphNode& node = graph.nodes[n];
    for (GraphValueId input : node.inputs) {
      if (input == -1) continue;
      if (!in_range(input)) return bad(n, "reads a value out of range");
      if (!defined[static_cast<size_t>(input)]) {
        return bad(n, "(" + std::string(OpInfo(node.op).name) + ") reads value " + std::to_string(input) +
                          " before it exists");
      }
    }
    for (GraphValueId output : node.outputs) {
      if (output == -1) continue;
      if (!in_range(output)) return bad(n, "defines a value out of range");
      if (defined[static_cast<size_t>(output)]) return bad(n, "defines value " + std::to_string(output) + " again");
      if (graph.value(output).index != static_cast<int32_t>(n)) return bad(n, "is not the origin of its output");
      defined[static_cast<size_t>(output)] = true;
    }
  }
  for (GraphValueId output : graph.outputs) {
    if (!in_range(output) || !defined[static_cast<size_t>(output)]) {
      return Fail(ErrorCode::kInternal, "a graph output is never defined");
    }
  }
  return {};
}

std::string PrintGraph(const Graph& graph) {
  std::string text;
  const auto name = [&](GraphValueId id) {
    if (id < 0) return std::string("_");
    const GraphValue& v = graph.value(id);
    std::string out;
    if (v.origin == Origin::kWeight) {
      out = "w";
      out += std::to_string(v.index);
    } else if (v.origin == Origin::kImmediate) {
      const std::optional<float> scalar = graph.ScalarOf(id);
      out = scalar ? std::to_string(*scalar) : "c" + std::to_string(v.index);
    } else {
      out = "%";
      out += std::to_string(id);
    }
    out += ':';
    out += DTypeName(v.dtype);
    out += '[';
    for (size_t i = 0; i < v.dims.size(); ++i) {
      if (i) out += ", ";
      out += graph.symbols.ToString(v.dims[i]);
    }
    out += ']';
    return out;
  };
  for (const GraphNode& node : graph.nodes) {
    for (size_t i = 0; i < node.outputs.size(); ++i) text += (i ? ", " : "") + name(node.outputs[i]);
    text += " = ";
    text += OpInfo(node.op).name;
    for (size_t i = 0; i < node.inputs.size(); ++i) text += (i ? ", " : " ") + name(node.inputs[i]);
    text += '\n';
  }
  text += "return";
  for (GraphValueId output : graph.outputs) text += " " + name(output);
  text += '\n';
  return text;
}

bool IsAtMost(const SymbolTable& symbols, Dim a, Dim b) {
  if (symbols.ProvenEqual(a, b)) return true;
  const std::vector<Constraint>& known = symbols.constraints();
  if (std::ranges::find(known, Constraint{ConstraintKind::kLessEqual, a, b}) != known.end()) return true;
  SymbolTable looked_at = symbols;  // the difference is made only to be looked at
  return looked_at.Bounds(looked_at.Sub(b, a)).min >= 0;
}

int NormalAxis(int64_t axis, int rank) {
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::optional<std::vector<int>> ReduceAxes(const Graph& graph, const GraphNode& node) {
  const int rank = graph.value(node.inputs[0]).rank();
  std::vector<int> axes;
  if (node.inputs.size() > 1 && node.inputs[1] >= 0) {
    const GraphValue& operand = graph.value(node.inputs[1]);
    if (!operand.known) return std::nullopt;
    for (Dim axis : *operand.known) {
      if (!axis.is_const()) return std::nullopt;
      axes.push_back(NormalAxis(axis.value(), rank));
    }
  } else {
    for (int64_t axis : node.attributes.Ints("axes")) axes.push_back(NormalAxis(axis, rank));
  }
  if (axes.empty() && node.attributes.Int("noop_with_empty_axes", 0) == 0) {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  for (int axis : axes) {
    if (axis < 0 || axis >= rank) return std::nullopt;
  }
  return axes;
}

}  // namespace kiln::ir
