#include "tests/vm-worker/onnx/model_builder.h"

#include "common/ops/tensor_op.h"

namespace kiln::onnx {
namespace {

AttributeProto Named(std::string_view name, int32_t type) {
  AttributeProto attribute;
  attribute.set_name(std::string(name));
  attribute.set_type(type);
  return attribute;
}

TensorProto NamedTensorProto(std::string_view name, int32_t dtype, const std::vector<int64_t>& dims) {
  TensorProto tensor;
  tensor.set_name(std::string(name));
  tensor.set_data_type(dtype);
  for (int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

}  // namespace

AttributeProto IntAttribute(std::string_view name, int64_t value) {
  AttributeProto attribute = Named(name, 2);
  attribute.set_i(value);
  return attribute;
}

AttributeProto FloatAttribute(std::string_view name, float value) {
  AttributeProto attribute = Named(name, 1);
  attribute.set_f(value);
  return attribute;
}

AttributeProto TextAttribute(std::string_view name, std::string_view value) {
  AttributeProto attribute = Named(name, 3);
  attribute.set_s(std::string(value));
  return attribute;
}

AttributeProto IntsAttribute(std::string_view name, std::vector<int64_t> values) {
  AttributeProto attribute = Named(name, 7);
  for (int64_t value : values) attribute.add_ints(value);
  return attribute;
}

AttributeProto FloatsAttribute(std::string_view name, std::vector<float> values) {
  AttributeProto attribute = Named(name, 6);
  for (float value : values) attribute.add_floats(value);
  return attribute;
}

AttributeProto TensorAttribute(std::string_view name, const TensorProto& value) {
  AttributeProto attribute = Named(name, 4);
  *attribute.mutable_t() = value;
  return attribute;
}

AttributeProto GraphAttribute(std::string_view name, const GraphProto& value) {
  AttributeProto attribute = Named(name, 5);
  *attribute.mutable_g() = value;
  return attribute;
}

AttributeProto ReferenceAttribute(std::string_view name, std::string_view formal) {
  AttributeProto attribute = Named(name, 0);
  attribute.set_ref_attr_name(std::string(formal));
  return attribute;
}

TensorProto FloatTensor(std::string_view name, std::vector<int64_t> dims, std::vector<float> values) {
  TensorProto tensor = NamedTensorProto(name, 1, dims);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

TensorProto IntTensor(std::string_view name, std::vector<int64_t> dims, std::vector<int64_t> values) {
  TensorProto tensor = NamedTensorProto(name, 7, dims);
  for (int64_t value : values) tensor.add_int64_data(value);
  return tensor;
}

TensorProto BoolTensor(std::string_view name, std::vector<int64_t> dims, std::vector<bool> values) {
  TensorProto tensor = NamedTensorProto(name, 9, dims);
  for (bool value : values) tensor.add_int32_data(value);
  return tensor;
}

ValueInfoProto Tensor32(std::string_view name, std::vector<TestDim> dims, int32_t dtype) {
  ValueInfoProto info;
  info.set_name(std::string(name));
  TypeProto::Tensor& type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(dtype);
  type.mutable_shape();
  for (const TestDim& dim : dims) {
    TensorShapeProto::Dimension& added = *type.mutable_shape()->add_dim();
    if (dim.value >= 0) added.set_dim_value(dim.value);
    if (!dim.name.empty()) added.set_dim_param(dim.name);
  }
  return info;
}

NodeProto& AddNode(google::protobuf::RepeatedPtrField<NodeProto>& nodes, std::string_view op,
                   std::initializer_list<std::string> inputs, std::initializer_list<std::string> outputs,
                   std::initializer_list<AttributeProto> attributes, std::string_view domain) {
  NodeProto& node = *nodes.Add();
  node.set_op_type(std::string(op));
  node.set_domain(std::string(domain));
  for (const std::string& input : inputs) node.add_input(input);
  for (const std::string& output : outputs) node.add_output(output);
  for (const AttributeProto& attribute : attributes) *node.add_attribute() = attribute;
  return node;
}

TestModel::TestModel(int64_t opset) {
  model_.set_ir_version(8);
  OperatorSetIdProto& import = *model_.add_opset_import();
  import.set_domain("");
  import.set_version(opset);
  model_.mutable_graph()->set_name("test");
}

TestModel& TestModel::Input(const ValueInfoProto& info) {
  *graph().add_input() = info;
  return *this;
}

TestModel& TestModel::Initializer(const TensorProto& tensor) {
  *graph().add_initializer() = tensor;
  return *this;
}

TestModel& TestModel::Node(std::string_view op, std::initializer_list<std::string> inputs,
                           std::initializer_list<std::string> outputs, std::initializer_list<AttributeProto> attributes,
                           std::string_view domain) {
  AddNode(*graph().mutable_node(), op, inputs, outputs, attributes, domain);
  return *this;
}

TestModel& TestModel::Output(std::string_view name) {
  graph().add_output()->set_name(std::string(name));
  return *this;
}

Result<ImportedModel> TestModel::Import(const ImportOptions& options) const {
  const std::string bytes = Bytes();
  return ImportOnnxBytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "test model", options);
}

int CountNodes(const Program& program, TensorOp op) {
  int count = 0;
  for (const Region& region : program.entry().regions) {
    for (const kiln::Node& node : region.nodes) count += node.op == op;
  }
  return count;
}

const Tensor* ConstantOutput(const Program& program, size_t index) {
  const Region& body = program.entry().regions[0];
  for (const kiln::Node& node : body.nodes) {
    if (node.op != TensorOp::kConstant || node.outputs[0] != body.outputs[index]) continue;
    return &program.constants[static_cast<size_t>(node.attributes.Constant("value"))].tensor;
  }
  return nullptr;
}

std::string DescText(const ImportedModel& model, const ImportedValue& value) {
  return ToString(value.desc, model.program.symbols);
}

}  // namespace kiln::onnx
