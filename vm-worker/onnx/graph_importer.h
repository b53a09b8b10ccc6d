// Walks graphs, functions and nodes of one model and feeds the builder. Scopes map ONNX names to values.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"
#include "vm-worker/onnx/file_weights.h"
#include "vm-worker/onnx/importer.h"
#include "vm-worker/onnx/rewrite.h"

namespace google::protobuf {
template <class T>
class RepeatedPtrField;
}

namespace kiln::onnx {

class FunctionProto;
class GraphProto;
class ModelProto;
class TensorProto;
class ValueInfoProto;

using OpsetImports = std::unordered_map<std::string, int64_t>;  // "" is ai.onnx

// Names visible in one graph or function body. Graphs see their parents; a function body sees its own names only.
struct Scope {
  const Scope* parent = nullptr;
  const OpsetImports* opsets = nullptr;
  const AttributeBindings* bindings = nullptr;
  int depth = 0;  // of graphs and function calls around it
  std::unordered_map<std::string, ValueId> values;

  const ValueId* Find(const std::string& name) const;
};

class GraphImporter {
 public:
  // `model` is changed: tensor data moves out of it.
  GraphImporter(ModelProto& model, WeightFiles files, ImportOptions options);

  Result<ImportedModel> Run();

  ProgramBuilder& builder() { return builder_; }

  // Imports the nodes of a graph into the open region, with `inputs` bound to the graph's inputs; returns the outputs.
  Result<ValueList> ImportBody(GraphProto& graph, const Scope& outer, std::span<const ValueId> inputs);

  // The tensor of a message, read once however often its graph is imported.
  Result<Tensor> ReadOnce(TensorProto& proto);

 private:
  Status CollectOpsets();
  Status AddInputs(GraphProto& graph, Scope& scope);
  Result<TensorDesc> DescOfInput(const ValueInfoProto& info, bool keep_last_dim);
  // A dim of an input that varies: the symbol of its name, or one of its own, under the hints given for it.
  Result<Dim> SymbolFor(const std::string& dim_param, const std::string& input, int axis);
  Status AddInitializers(GraphProto& graph, Scope& scope);
  Status ImportNodes(google::protobuf::RepeatedPtrField<NodeProto>& nodes, Scope& scope);
  Status ImportNode(NodeProto& node, Scope& scope);
  Result<ValueList> ApplyRule(NodeProto& node, const std::string& domain, ValueList inputs, const Scope& scope);
  Result<ValueList> CallFunction(FunctionProto& function, const NodeAttributes& attributes, ValueList inputs,
                                 const Scope& caller);
  Result<ImportedModel> Finish(GraphProto& graph, const Scope& scope);

  ModelProto& model_;
  WeightFiles files_;
  ImportOptions options_;
  DimHints hints_;
  ProgramBuilder builder_;
  OpsetImports opsets_;
  std::map<std::string, FunctionProto*> functions_;  // by FunctionKey
  std::unordered_map<std::string, Dim> dim_params_;
  std::unordered_map<const TensorProto*, Tensor> tensors_;
  std::vector<std::string> overridable_;
  size_t visited_nodes_ = 0;
};

}  // namespace kiln::onnx
