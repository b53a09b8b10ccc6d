#include "tests/end_to_end/small_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "common/numeric/difference.h"
#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::testing {
namespace {

void AddWeight(onnx::GraphProto& graph, const std::string& name, std::vector<int64_t> dims) {
  onnx::TensorProto& weight = *graph.add_initializer();
  weight.set_name(name);
  weight.set_data_type(1);
  int64_t count = 1;
  for (int64_t dim : dims) {
    weight.add_dims(dim);
    count *= dim;
  }
  std::string raw(static_cast<size_t>(count) * 4, '\0');
  for (int64_t i = 0; i < count; ++i) {
    const float value = std::sin(static_cast<float>(i) * 1.7f);
    std::memcpy(raw.data() + i * 4, &value, 4);
  }
  weight.set_raw_data(raw);
}

void AddNode(onnx::GraphProto& graph, const std::string& op, std::vector<std::string> inputs,
             const std::string& output) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  node.set_name(op + "_of_" + output);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
}

void AddValue(onnx::ValueInfoProto& value, const std::string& name, int64_t columns) {
  value.set_name(name);
  auto& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(1);
  tensor.mutable_shape()->add_dim()->set_dim_param("n");
  tensor.mutable_shape()->add_dim()->set_dim_value(columns);
}

}  // namespace

SmallModel::SmallModel(int64_t columns, const std::string& activation, bool bias_is_input, int64_t inner)
    : inner_(inner) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("small");
  AddWeight(graph, "w", {inner, columns});
  AddWeight(graph, "b", {columns});
  AddNode(graph, "MatMul", {"x", "w"}, "xw");
  AddNode(graph, "Add", {"xw", "b"}, "sum");
  AddNode(graph, activation, {"sum"}, "positive");
  AddNode(graph, "Softmax", {"positive"}, "y");
  AddValue(*graph.add_input(), "x", inner);
  if (bias_is_input) {
    onnx::ValueInfoProto& bias = *graph.add_input();
    bias.set_name("b");
    bias.mutable_type()->mutable_tensor_type()->set_elem_type(1);
    bias.mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(columns);
  }
  AddValue(*graph.add_output(), "y", columns);
  bytes_ = model.SerializeAsString();
  auto imported = ImportOnnxBytes({reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()}, "small");
  EXPECT_TRUE(imported.has_value()) << ToString(imported.error());
  program_ = LoadedProgram::Load(std::move(imported->program)).value();
}

std::string SmallModel::WriteTo(const std::string& directory) const {
  const std::string path = directory + "/model.onnx";
  std::ofstream(path, std::ios::binary) << bytes_;
  return path;
}

Tensor SmallModel::Input(int64_t rows) const {
  Tensor x = Tensor::Allocate(DType::kF32, {rows, inner_});
  for (int64_t i = 0; i < rows * inner_; ++i) x.ref.as<float>()[i] = std::cos(static_cast<float>(i + rows) * 0.9f);
  return x;
}

std::string SmallModel::Difference(int64_t rows, const Tensor& actual) {
  const Tensor x = Input(rows);
  auto expected = context_.Run(*program_, {&x.ref, 1});
  EXPECT_TRUE(expected.has_value());
  const auto bounds = OutputErrorBounds(program_->program(), {}, NumericMode::kDefault);
  return FirstDifference((*expected)[0].ref, actual.ref, bounds.at(0)).value_or("");
}

}  // namespace kiln::testing
