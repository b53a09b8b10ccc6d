// Walks graphs, functions and nodes of one model and feeds the builder. Scopes map ONNX names to values.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"
#include "vm-worker/onnx/file_weights.h"
#include "vm-worker/onnx/importer.h"
#include "vm-worker/onnx/node_order.h"
#include "vm-worker/onnx/rewrite.h"

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
  int depth = 0;                    // of graphs and function calls around it
  bool splits = true;               // whether an If may take the rest of the body into its branches
  const NameSet* needed = nullptr;  // what every run of the program needs of this body; none where a run may pass it by
  std::unordered_map<std::string, ValueId> values;

  const ValueId* Find(const std::string& name) const;
};

// What holds of a value whichever branch of an If made it: equal dims stay, others become a fresh symbol; ranks that
// differ are unknown. Symbols from `outer_symbols` on mean nothing outside.
Result<TensorDesc> MergeBranches(SymbolTable& symbols, const TensorDesc& a, const TensorDesc& b, size_t outer_symbols);

// Whether a body runs wherever its node does, as part of the region around it, or where the run decides.
enum class BodyRuns : uint8_t { kWithItsNode, kMaybe };

class GraphImporter {
 public:
  // `model` is changed: tensor data moves out of it.
  GraphImporter(ModelProto& model, WeightFiles files, ImportOptions options);

  Result<ImportedModel> Run();

  ProgramBuilder& builder() { return builder_; }

  // Imports the nodes of a graph into the open region, with `inputs` bound to the graph's inputs; returns the outputs.
  Result<ValueList> ImportBody(GraphProto& graph, const Scope& outer, std::span<const ValueId> inputs, BodyRuns runs);

  // The tensor of a message, read once however often its graph is imported.
  Result<Tensor> ReadOnce(TensorProto& proto);

 private:
  Status CollectOpsets();
  Status AddInputs(GraphProto& graph, Scope& scope);
  // Initialisers of the model that are inputs too: whether this one is imported as an input; the list of the others.
  bool IsOverridden(const std::string& name) const;
  Status ListOverridable(const ValueInfoProto& info);
  Status CheckOverrides(const GraphProto& graph, const std::set<std::string>& initializers) const;
  Result<TensorDesc> DescOfInput(const ValueInfoProto& info, bool keep_last_dim);
  // A dim of an input that varies: the symbol of its name, or one of its own, under the hints given for it.
  Result<Dim> SymbolFor(const std::string& dim_param, const std::string& input, int axis);
  Status AddInitializers(GraphProto& graph, Scope& scope);
  Status VisitNode(NodeProto& node, Scope& scope);
  Status ImportNode(NodeProto& node, Scope& scope);
  // Imports the nodes of a graph and gives its outputs; `every_run`: whether every run needs them.
  Result<ValueList> ImportGraph(GraphProto& graph, Scope& scope, bool every_run);

  // --- split_if.cc ---
  // What of a graph is still to be imported.
  struct Rest {
    GraphProto& graph;
    const std::vector<int>& order;
    size_t next;
  };
  Result<ValueList> ImportRest(Rest rest, Scope& scope);
  // An If whose branches give tensors of different ranks says nothing about what follows. Then the rest of the graph
  // moves into the branches, where ranks are known, and its outputs are the result; nothing when the If was imported as
  // it is.
  Result<std::optional<ValueList>> SplitIf(NodeProto& node, const Rest& rest, Scope& scope);
  bool LosesRank(const NodeProto& node, const Scope& scope);
  struct Side {
    RegionId region;
    ValueList outputs;
  };
  // A branch and the rest of the graph behind it; nothing when it cannot be: its ranks are wrong for what follows.
  std::optional<Side> ImportSide(NodeProto& node, std::string_view branch, const Rest& rest, const Scope& scope);
  // The whole If, then the rest of the graph as it is: what reports such wrong ranks when the branch is taken.
  Result<Side> ImportWhole(NodeProto& node, const Rest& rest, const Scope& scope);

  Result<ValueList> ApplyRule(NodeProto& node, const std::string& domain, ValueList inputs, const Scope& scope);
  Result<ValueList> CallFunction(FunctionProto& function, const NodeProto& node, const NodeAttributes& attributes,
                                 ValueList inputs, const Scope& caller);
  Result<ImportedModel> Finish(GraphProto& graph, const ValueList& made);

  ModelProto& model_;
  WeightFiles files_;
  ImportOptions options_;
  DimHints hints_;
  ProgramBuilder builder_;
  OpsetImports opsets_;
  std::map<std::string, FunctionProto*> functions_;  // by FunctionKey
  std::unordered_map<std::string, Dim> dim_params_;
  std::unordered_map<const TensorProto*, Tensor> tensors_;
  std::vector<OverridableInput> overridable_;
  size_t visited_nodes_ = 0;
  int splits_ = 0;
};

}  // namespace kiln::onnx
