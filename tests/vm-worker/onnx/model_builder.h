// ONNX models made in tests.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/tensor/tensor.h"
#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::onnx {

// An input dim: a number, a symbol name, or "" for neither.
struct TestDim {
  TestDim(int64_t number) : value(number) {}
  TestDim(const char* symbol) : name(symbol) {}
  int64_t value = -1;
  std::string name;
};

AttributeProto IntAttribute(std::string_view name, int64_t value);
AttributeProto FloatAttribute(std::string_view name, float value);
AttributeProto TextAttribute(std::string_view name, std::string_view value);
AttributeProto IntsAttribute(std::string_view name, std::vector<int64_t> values);
AttributeProto FloatsAttribute(std::string_view name, std::vector<float> values);
AttributeProto TensorAttribute(std::string_view name, const TensorProto& value);
AttributeProto GraphAttribute(std::string_view name, const GraphProto& value);
// Refers to formal attribute `formal` of the function around the node.
AttributeProto ReferenceAttribute(std::string_view name, std::string_view formal);

TensorProto FloatTensor(std::string_view name, std::vector<int64_t> dims, std::vector<float> values);
TensorProto IntTensor(std::string_view name, std::vector<int64_t> dims, std::vector<int64_t> values);
TensorProto BoolTensor(std::string_view name, std::vector<int64_t> dims, std::vector<bool> values);
ValueInfoProto Tensor32(std::string_view name, std::vector<TestDim> dims, int32_t dtype = 1);

// Adds a node and returns it. Inputs and outputs are lists of names, "" where one is absent.
NodeProto& AddNode(google::protobuf::RepeatedPtrField<NodeProto>& nodes, std::string_view op,
                   std::initializer_list<std::string> inputs, std::initializer_list<std::string> outputs,
                   std::initializer_list<AttributeProto> attributes = {}, std::string_view domain = "");

// A model with one graph. The graph is public through `graph()`.
class TestModel {
 public:
  explicit TestModel(int64_t opset);
  GraphProto& graph() { return *model_.mutable_graph(); }
  ModelProto& proto() { return model_; }
  TestModel& Input(const ValueInfoProto& info);
  TestModel& Initializer(const TensorProto& tensor);
  TestModel& Node(std::string_view op, std::initializer_list<std::string> inputs,
                  std::initializer_list<std::string> outputs, std::initializer_list<AttributeProto> attributes = {},
                  std::string_view domain = "");
  TestModel& Output(std::string_view name);
  std::string Bytes() const { return model_.SerializeAsString(); }
  Result<ImportedModel> Import(const ImportOptions& options = {}) const;

 private:
  ModelProto model_;
};

// Nodes of an op, in all regions.
int CountNodes(const Program& program, TensorOp op);
// The constant that output `index` of the entry is, or nullptr.
const Tensor* ConstantOutput(const Program& program, size_t index);
// "f32[n, 4]"
std::string DescText(const ImportedModel& model, const ImportedValue& value);

}  // namespace kiln::onnx
