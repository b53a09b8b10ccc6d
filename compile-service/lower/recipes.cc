// Prepack recipes: what follows from weights and immediates alone, as programs in the op table's own forms.
#include <algorithm>
#include <limits>

#include "compile-service/lower/plan_builder.h"

namespace kiln::lower {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValue;
using ir::GraphValueId;

namespace {

constexpr Dim kZero = Dim::Const(0);

TensorDesc DescOf(DType dtype, const std::vector<Dim>& dims) {
  TensorDesc desc;
  desc.dtype = dtype;
  desc.dims = dims;
  return desc;
}

class RecipeWriter {
 public:
  explicit RecipeWriter(const Graph& graph) : graph_(graph), value_of_(graph.values.size(), kNoValue) {
    recipe_.program.name = "prepack";
    recipe_.program.functions.resize(1);
    function().name = "main";
    function().regions.resize(1);
  }

  Result<PrepackRecipe> Write(GraphValueId id) {
    std::vector<bool> needed(graph_.nodes.size(), false);
    RETURN_IF_ERROR(Mark(id, &needed));
    for (size_t n = 0; n < needed.size(); ++n) {
      if (needed[n]) RETURN_IF_ERROR(Translate(graph_.nodes[n]));
    }
    region().outputs = {ValueOf(id)};
    return std::move(recipe_);
  }

 private:
  Function& function() { return recipe_.program.functions.front(); }
  Region& region() { return function().regions.front(); }

  // Nodes `id` follows from; weights become inputs in the order they are met.
  Status Mark(GraphValueId id, std::vector<bool>* needed) {
    const GraphValue& value = graph_.value(id);
    if (value.origin == ir::Origin::kWeight && value_of_[static_cast<size_t>(id)] == kNoValue) {
      value_of_[static_cast<size_t>(id)] =
          AddValue("w" + std::to_string(recipe_.weights.size()), DescOf(value.dtype, value.dims));
      region().inputs.push_back(value_of_[static_cast<size_t>(id)]);
      recipe_.weights.push_back(value.index);
    }
    if (value.origin != ir::Origin::kNode || (*needed)[static_cast<size_t>(value.index)]) return {};
    if (!value.prepack) return Fail(ErrorCode::kInternal, "a recipe reads a value that depends on run-time inputs");
    (*needed)[static_cast<size_t>(value.index)] = true;
    for (GraphValueId input : graph_.nodes[static_cast<size_t>(value.index)].inputs) {
      if (input >= 0) RETURN_IF_ERROR(Mark(input, needed));
    }
    return {};
  }

  ValueId AddValue(std::string name, TensorDesc desc) {
    function().values.push_back({std::move(name), std::move(desc)});
    return static_cast<ValueId>(function().values.size() - 1);
  }

  ValueId AddConstant(Tensor tensor) {
    std::vector<Dim> dims;
    for (int64_t extent : tensor.dims()) dims.push_back(Dim::Const(extent));
    const ValueId value =
        AddValue("c" + std::to_string(recipe_.program.constants.size()), DescOf(tensor.dtype(), dims));
    Attributes attributes;
    attributes.Set("value", static_cast<ConstantId>(recipe_.program.constants.size()));
    const bool immediate = Program::IsImmediate(tensor);
    recipe_.program.constants.push_back(
        {"c" + std::to_string(recipe_.program.constants.size()), std::move(tensor), immediate});
    region().nodes.push_back({TensorOp::kConstant, "", {}, {value}, std::move(attributes), {}});
    return value;
  }

  ValueId AddIntegers(const std::vector<int64_t>& values) {
    return AddConstant(Tensor::Of<int64_t>(DType::kI64, Dims{static_cast<int64_t>(values.size())}, values));
  }

  ValueId ValueOf(GraphValueId id) {
    ValueId& value = value_of_[static_cast<size_t>(id)];
    if (value == kNoValue) value = AddConstant(graph_.immediates[static_cast<size_t>(graph_.value(id).index)]);
    return value;
  }

  static std::vector<int64_t> Constants(const std::vector<Dim>& dims) {
    std::vector<int64_t> values;
    for (Dim dim : dims) values.push_back(dim.value());
    return values;
  }

  Status Translate(const GraphNode& node) {
    Node out{node.op, "", {}, {}, node.attributes, {}};
    for (const Attribute& attribute : node.attributes.all()) {
      if (std::holds_alternative<ConstantId>(attribute.value)) {
        return Fail(ErrorCode::kUnsupported, "a prepacked " + std::string(OpInfo(node.op).name) + " names a constant");
      }
    }
    for (GraphValueId input : node.inputs) out.inputs.push_back(input < 0 ? kNoValue : ValueOf(input));
    const GraphValue& result = graph_.value(node.outputs[0]);
    // The forms of the graph carry their operands as dims and attributes; a program's nodes take tensors.
    if ((node.op == TensorOp::kReshape || node.op == TensorOp::kExpand) && node.inputs.size() == 1) {
      out.inputs.push_back(AddIntegers(Constants(result.dims)));
      if (node.op == TensorOp::kReshape) out.attributes.Set("allowzero", int64_t{1});
    } else if (node.op == TensorOp::kSlice && node.attributes.Has("starts")) {
      AddSliceOperands(node, result, out);
    } else if (OpInfo(node.op).family == OpFamily::kReduction && node.attributes.Has("axes")) {
      const std::span<const int64_t> axes = node.attributes.Ints("axes");
      out.inputs.push_back(AddIntegers({axes.begin(), axes.end()}));
      out.attributes = {};
      const bool keep = result.rank() == graph_.value(node.inputs[0]).rank();
      out.attributes.Set("keepdims", int64_t{keep ? 1 : 0});
    }
    for (GraphValueId output : node.outputs) {
      if (output < 0) {
        out.outputs.push_back(kNoValue);
        continue;
      }
      const GraphValue& value = graph_.value(output);
      value_of_[static_cast<size_t>(output)] = AddValue("v" + std::to_string(output), DescOf(value.dtype, value.dims));
      out.outputs.push_back(value_of_[static_cast<size_t>(output)]);
    }
    region().nodes.push_back(std::move(out));
    return {};
  }

  void AddSliceOperands(const GraphNode& node, const GraphValue& result, Node& out) {
    const std::span<const Dim> starts = node.attributes.Dims("starts");
    const std::span<const int64_t> steps = node.attributes.Ints("steps");
    std::vector<int64_t> first, last, axes;
    for (size_t i = 0; i < starts.size(); ++i) {
      const int64_t end = starts[i].value() + result.dims[i].value() * steps[i];
      first.push_back(starts[i].value());
      last.push_back(end < 0 ? INT64_MIN : end);
      axes.push_back(static_cast<int64_t>(i));
    }
    for (const std::vector<int64_t>& list : {first, last, axes, std::vector<int64_t>(steps.begin(), steps.end())}) {
      out.inputs.push_back(AddIntegers(list));
    }
    out.attributes = {};
  }

  const Graph& graph_;
  std::vector<ValueId> value_of_;
  PrepackRecipe recipe_;
};

}  // namespace

Result<PrepackRecipe> BuildRecipe(const Graph& graph, GraphValueId id) {
  return RecipeWriter(graph).Write(id);
}

Result<Place> PlanBuilder::Recipe(GraphValueId id) {
  const GraphValue& value = graph_.value(id);
  const std::vector<Dim> strides = OrderedStrides(value.dims, RowMajor(value.rank()));
  if (value.origin == ir::Origin::kWeight) return Place{StorageKind::kWeight, value.index, kZero, strides};
  auto found = recipe_of_.find(id);
  if (found == recipe_of_.end()) {
    ASSIGN_OR_RETURN(PrepackRecipe recipe, BuildRecipe(graph_, id));
    plan_.recipes.push_back(std::move(recipe));
    found = recipe_of_.emplace(id, static_cast<int32_t>(plan_.recipes.size() - 1)).first;
  }
  return Place{StorageKind::kPrepacked, found->second, kZero, strides};
}

GraphValueId PlanBuilder::AddPrepackNode(TensorOp op, std::vector<GraphValueId> inputs, std::vector<Dim> dims,
                                         Attributes attributes, std::optional<DType> dtype) {
  for (const auto& [key, id] : prepack_nodes_) {
    if (key.op == op && key.inputs == inputs && key.attributes == attributes && graph_.value(id).dims == dims)
      return id;
  }
  const GraphValueId output = graph_.AddValue(dtype.value_or(graph_.value(inputs[0]).dtype), std::move(dims));
  graph_.value(output).prepack = true;
  graph_.value(output).index = static_cast<int32_t>(graph_.nodes.size());
  graph_.nodes.push_back({op, std::move(attributes), std::move(inputs), {output}, {}});
  prepack_nodes_.emplace_back(graph_.nodes.back(), output);
  return output;
}

GraphValueId PlanBuilder::WithoutDenormals(GraphValueId weights) {
  if (mode_ == NumericMode::kStrict || graph_.value(weights).dtype != DType::kF32) return weights;
  if (smallest_normal_ < 0) smallest_normal_ = graph_.AddScalar(std::numeric_limits<float>::min());
  const std::vector<Dim> dims = graph_.value(weights).dims;
  const GraphValueId size = AddPrepackNode(TensorOp::kAbs, {weights}, dims);
  const GraphValueId tiny = AddPrepackNode(TensorOp::kLess, {size, smallest_normal_}, dims, {}, DType::kBool);
  const GraphValueId sign = AddPrepackNode(TensorOp::kSign, {weights}, dims);
  const GraphValueId normal = AddPrepackNode(TensorOp::kMul, {sign, smallest_normal_}, dims);
  return AddPrepackNode(TensorOp::kWhere, {tiny, normal, weights}, dims, {}, DType::kF32);
}

GraphValueId PlanBuilder::AddIntegers(std::vector<int64_t> values) {
  for (const auto& [list, id] : integers_) {
    if (list == values) return id;
  }
  const GraphValueId id =
      graph_.AddImmediate(Tensor::Of<int64_t>(DType::kI64, Dims{static_cast<int64_t>(values.size())}, values));
  integers_.emplace_back(std::move(values), id);
  return id;
}

Result<Place> PlanBuilder::Zeros(int64_t elements) {
  if (zeros_ < 0) {
    int64_t most = elements;  // one vector serves every convolution
    for (const GraphNode& node : graph_.nodes) {
      if (node.op == TensorOp::kConv && graph_.value(node.inputs[1]).dims[1].is_const()) {
        most = std::max(most, graph_.value(node.inputs[1]).dims[1].value());
      }
    }
    zeros_ = graph_.AddImmediate(Tensor::Zeros(DType::kF32, Dims{most}));
  }
  return Recipe(zeros_);
}

Result<Place> PlanBuilder::ZeroOf(DType dtype) {
  return Recipe(graph_.AddImmediate(Tensor::Zeros(dtype, Dims{1})));
}

}  // namespace kiln::lower
