#include "vm-worker/onnx/graph_importer.h"

#include <algorithm>
#include <set>

#include "schemas/onnx.pb.h"
#include "vm-worker/load/prepare_program.h"
#include "vm-worker/onnx/node_order.h"
#include "vm-worker/onnx/rank_operands.h"
#include "vm-worker/onnx/sequences.h"
#include "vm-worker/onnx/tensor_proto.h"
#include "vm-worker/onnx/user_op.h"

namespace kiln::onnx {
namespace {

// Discarded tries of loop bodies and inlined functions count too.
constexpr size_t kVisitedNodesMax = limits::kProgramNodesMax;
// Below it every initialiser had to be listed as an input, which says nothing about callers.
constexpr int64_t kOverridableIrVersion = 4;

std::string CanonicalDomain(const std::string& domain) {
  return domain == "ai.onnx" ? std::string() : domain;
}

std::string ShownDomain(const std::string& domain) {
  return domain.empty() ? "ai.onnx" : domain;
}

std::string FunctionKey(const std::string& domain, const std::string& name, const std::string& overload) {
  return CanonicalDomain(domain) + '\0' + name + '\0' + overload;
}

std::string NameOf(const NodeProto& node) {
  if (!node.name().empty()) return node.name();
  for (const std::string& output : node.output()) {
    if (!output.empty()) return output;
  }
  return "?";
}

// Identifiers of the text form: letters, digits and '_'.
std::string Identifier(const std::string& name) {
  std::string identifier;
  for (char c : name.substr(0, 64)) {
    const bool keep = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    identifier += keep ? c : '_';
  }
  if (identifier.empty() || (identifier[0] >= '0' && identifier[0] <= '9')) identifier = "d" + identifier;
  return identifier;
}

}  // namespace

const ValueId* Scope::Find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    if (const auto found = scope->values.find(name); found != scope->values.end()) return &found->second;
  }
  return nullptr;
}

GraphImporter::GraphImporter(ModelProto& model, WeightFiles files, ImportOptions options)
    : model_(model),
      files_(std::move(files)),
      options_(std::move(options)),
      hints_(options_.dim_hints),
      builder_(model.graph().name()) {}

Status GraphImporter::CollectOpsets() {
  for (const OperatorSetIdProto& import : model_.opset_import()) {
    opsets_[CanonicalDomain(import.domain())] = import.version();
  }
  if (opsets_.empty()) opsets_[""] = 1;  // format versions below 3 had no imports: operator set 1
  const bool only_other_domains = !opsets_.contains("");
  const int64_t opset = only_other_domains ? 0 : opsets_[""];
  if (!only_other_domains && (opset < kOnnxOpsetMin || opset > kOnnxOpsetMax)) {
    return Fail(ErrorCode::kUnsupported, "the model uses ai.onnx operator set " + std::to_string(opset) +
                                             "; versions " + std::to_string(kOnnxOpsetMin) + " to " +
                                             std::to_string(kOnnxOpsetMax) + " are supported");
  }
  for (FunctionProto& function : *model_.mutable_functions()) {
    functions_[FunctionKey(function.domain(), function.name(), function.overload())] = &function;
  }
  return {};
}

Result<Dim> GraphImporter::SymbolFor(const std::string& dim_param, const std::string& input, int axis) {
  ASSIGN_OR_RETURN(const DimHint* const hint, hints_.Find(dim_param, input, axis));
  if (const auto found = dim_params_.find(dim_param); !dim_param.empty() && found != dim_params_.end()) {
    const Dim dim = found->second;
    const Interval known = builder_.symbols().Bounds(dim);
    const int64_t step = dim.is_const() ? dim.value() : builder_.symbols().Divisor(dim);
    const bool narrower =
        hint != nullptr && (hint->range.min > known.min || hint->range.max < known.max || step % hint->divisor != 0);
    if (!narrower) return dim;
    return Fail(ErrorCode::kInvalidArgument, "dim " + std::to_string(axis) + " of input '" + input +
                                                 "' is the symbol '" + dim_param +
                                                 "', which an earlier input has without the hint " + ToString(*hint) +
                                                 "; give the hint by the "
                                                 "symbol's name");
  }
  const Interval range = hint == nullptr ? Interval{} : hint->range;
  const int64_t divisor = hint == nullptr ? 1 : hint->divisor;
  Dim dim = Dim::Const(range.min);
  if (range.min != range.max) {
    std::string name;
    if (!dim_param.empty()) {
      name = Identifier(dim_param);
      while (builder_.symbols().FindSymbol(name)) name += "_";
    }
    ASSIGN_OR_RETURN(dim, builder_.symbols().AddSymbol(name, range, divisor));
    if (hint != nullptr) {
      builder_.SetRangeSource(builder_.symbols().symbol(dim.symbol()).name,
                              "--dim " + hint->name + "=" + ToString(*hint));
    }
  }
  if (!dim_param.empty()) dim_params_.emplace(dim_param, dim);
  return dim;
}

Result<TensorDesc> GraphImporter::DescOfInput(const ValueInfoProto& info, bool keep_last_dim) {
  const std::string what = "input '" + info.name() + "'";
  if (info.type().has_sequence_type() || info.type().has_optional_type()) {
    return Fail(ErrorCode::kUnsupported, what + " is a sequence or optional; only tensors are supported");
  }
  if (!info.type().has_tensor_type()) return Fail(ErrorCode::kMalformed, what + " has no type");
  const TypeProto::Tensor& type = info.type().tensor_type();
  auto dtype = DTypeOfOnnx(type.elem_type());
  if (!dtype.has_value()) return FailIn(what, dtype.error());
  TensorDesc desc{.dtype = *dtype};
  if (!type.has_shape()) return desc;
  const int rank = type.shape().dim_size();
  if (rank > limits::kRankMax) {
    return Fail(ErrorCode::kLimitExceeded, what + " has rank " + std::to_string(rank) + "; at most " +
                                               std::to_string(limits::kRankMax) + " is supported");
  }
  desc.dims.emplace();
  for (int i = 0; i < rank; ++i) {
    const TensorShapeProto::Dimension& dim = type.shape().dim(i);
    const bool keep = !options_.all_dims_dynamic || (keep_last_dim && i == rank - 1);
    if (keep && dim.has_dim_value() && dim.dim_value() >= 0) {
      RETURN_IF_ERROR(hints_.CheckConstant(info.name(), i, dim.dim_value()));
      desc.dims->push_back(Dim::Const(dim.dim_value()));
    } else {
      ASSIGN_OR_RETURN(const Dim symbol, SymbolFor(keep ? dim.dim_param() : std::string(), info.name(), i));
      desc.dims->push_back(symbol);
    }
  }
  return desc;
}

bool GraphImporter::IsOverridden(const std::string& name) const {
  return std::ranges::find(options_.overrides, name) != options_.overrides.end();
}

Status GraphImporter::ListOverridable(const ValueInfoProto& info) {
  OverridableInput input{.name = info.name()};
  const TypeProto::Tensor& type = info.type().tensor_type();
  ASSIGN_OR_RETURN(input.dtype, DTypeOfOnnx(type.elem_type()));
  input.text = DTypeName(input.dtype);
  if (type.has_shape()) {
    input.dims.emplace();
    std::string dims;
    for (const TensorShapeProto::Dimension& dim : type.shape().dim()) {
      const bool constant = dim.has_dim_value() && dim.dim_value() >= 0;
      input.dims->push_back(constant ? dim.dim_value() : -1);
      dims += (dims.empty() ? "" : ", ") + (constant                  ? std::to_string(dim.dim_value())
                                            : dim.dim_param().empty() ? "?"
                                                                      : dim.dim_param());
    }
    input.text += "[" + dims + "]";
  }
  overridable_.push_back(std::move(input));
  return {};
}

Status GraphImporter::CheckOverrides(const GraphProto& graph, const std::set<std::string>& initializers) const {
  for (const std::string& name : options_.overrides) {
    const bool is_input = std::ranges::any_of(graph.input(), [&](const auto& info) { return info.name() == name; });
    if (is_input && initializers.contains(name) && model_.ir_version() >= kOverridableIrVersion) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "'" + name + "' cannot be overridden: it is no initialiser that the model lists as an input" +
                    (model_.ir_version() < kOverridableIrVersion
                         ? " (and its format version " + std::to_string(model_.ir_version()) + " has none)"
                         : ""));
  }
  return {};
}

Status GraphImporter::AddInputs(GraphProto& graph, Scope& scope) {
  std::set<std::string> initializers;
  for (const TensorProto& tensor : graph.initializer()) initializers.insert(tensor.name());
  for (const SparseTensorProto& tensor : graph.sparse_initializer()) initializers.insert(tensor.values().name());
  RETURN_IF_ERROR(CheckOverrides(graph, initializers));
  const std::set<std::string> rank_operands =
      options_.all_dims_dynamic ? FindRankOperands(graph) : std::set<std::string>();
  for (const ValueInfoProto& info : graph.input()) {
    if (initializers.contains(info.name())) {
      if (!IsOverridden(info.name())) {
        if (model_.ir_version() >= kOverridableIrVersion) RETURN_IF_ERROR(ListOverridable(info));
        continue;
      }
    }
    ASSIGN_OR_RETURN(TensorDesc desc, DescOfInput(info, rank_operands.contains(info.name())));
    const ValueId value = builder_.AddRegionInput(info.name(), std::move(desc));
    if (!scope.values.emplace(info.name(), value).second) {
      return Fail(ErrorCode::kMalformed, "input '" + info.name() + "' is declared twice");
    }
  }
  return hints_.CheckAllUsed();
}

Result<Tensor> GraphImporter::ReadOnce(TensorProto& proto) {
  if (const auto found = tensors_.find(&proto); found != tensors_.end()) return found->second;
  ASSIGN_OR_RETURN(Tensor tensor, ReadTensor(proto, files_));
  tensors_.emplace(&proto, tensor);
  return tensor;
}

Status GraphImporter::AddInitializers(GraphProto& graph, Scope& scope) {
  // Of several initializers of one name the last counts, as other runtimes have it.
  const bool is_model = scope.parent == nullptr;
  const auto add = [&](const std::string& name, Tensor tensor) {
    if (is_model && IsOverridden(name)) return;
    builder_.SetNodeName(name);
    scope.values[name] = builder_.EmitConstant(std::move(tensor), name);
  };
  for (TensorProto& proto : *graph.mutable_initializer()) {
    auto tensor = ReadOnce(proto);
    if (!tensor.has_value()) return FailIn("initializer", tensor.error());
    add(proto.name(), *std::move(tensor));
  }
  for (SparseTensorProto& proto : *graph.mutable_sparse_initializer()) {
    auto tensor = ReadSparseTensor(proto, files_);
    if (!tensor.has_value()) return FailIn("initializer", tensor.error());
    add(proto.values().name(), *std::move(tensor));
  }
  return {};
}

Status GraphImporter::VisitNode(NodeProto& node, Scope& scope) {
  if (++visited_nodes_ > kVisitedNodesMax || builder_.emitted_nodes() > kVisitedNodesMax) {
    return Fail(ErrorCode::kLimitExceeded,
                "the model expands to more than " + std::to_string(kVisitedNodesMax) + " nodes");
  }
  const bool around = builder_.every_run();
  builder_.SetEveryRun(scope.needed != nullptr && MakesAny(node, *scope.needed));
  const Status status = ImportNode(node, scope);
  builder_.SetEveryRun(around);
  if (status.has_value()) return {};
  const std::string domain = CanonicalDomain(node.domain());
  const auto opset = scope.opsets->find(domain);
  return FailIn("node '" + NameOf(node) + "' (" + node.op_type() + ", " + ShownDomain(domain) + " " +
                    (opset == scope.opsets->end() ? "?" : std::to_string(opset->second)) + ")",
                status.error());
}

Result<ValueList> GraphImporter::ImportGraph(GraphProto& graph, Scope& scope, bool every_run) {
  ASSIGN_OR_RETURN(const std::vector<int> order, ExecutionOrder(graph.node()));
  NameSet needed;
  if (every_run) {
    for (const ValueInfoProto& output : graph.output()) needed.insert(output.name());
    needed = NeededNames(graph.node(), order, std::move(needed));
    scope.needed = &needed;
  }
  return ImportRest({graph, order, 0}, scope);
}

Status GraphImporter::ImportNode(NodeProto& node, Scope& scope) {
  const std::string domain = CanonicalDomain(node.domain());
  ValueList inputs;
  for (const std::string& name : node.input()) {
    const ValueId* value = name.empty() ? nullptr : scope.Find(name);
    if (value == nullptr && !name.empty()) {
      return Fail(ErrorCode::kMalformed,
                  "input '" + name + "' is not defined by an input, an initializer or another node");
    }
    inputs.push_back(value == nullptr ? kNoValue : *value);
  }
  builder_.SetNodeName(NameOf(node));
  const ValueId first_id = builder_.value_count();
  ASSIGN_OR_RETURN(const ValueList outputs, ApplyRule(node, domain, std::move(inputs), scope));
  for (int i = 0; i < node.output_size(); ++i) {
    const std::string& name = node.output(i);
    if (name.empty()) continue;
    const ValueId value = static_cast<size_t>(i) < outputs.size() ? outputs[static_cast<size_t>(i)] : kNoValue;
    if (value == kNoValue) return Fail(ErrorCode::kUnsupported, "output '" + name + "' is not produced");
    if (!scope.values.emplace(name, value).second) {
      return Fail(ErrorCode::kMalformed, "output '" + name + "' is defined twice");
    }
    if (value >= first_id) builder_.Rename(value, name);
  }
  return {};
}

Result<ValueList> GraphImporter::ApplyRule(NodeProto& node, const std::string& domain, ValueList inputs,
                                           const Scope& scope) {
  ASSIGN_OR_RETURN(const NodeAttributes attributes, NodeAttributes::Of(node, scope.bindings));
  const auto function = functions_.find(FunctionKey(domain, node.op_type(), node.overload()));
  if (function != functions_.end()) return CallFunction(*function->second, node, attributes, std::move(inputs), scope);
  if (const UserOp* user = domain.empty() ? nullptr : FindUserOp(domain, node.op_type())) {
    int outputs = node.output_size();
    while (outputs > 0 && node.output(outputs - 1).empty()) --outputs;
    return EmitUserOp(builder_, *user, attributes, std::move(inputs), outputs);
  }
  const auto opset = scope.opsets->find(domain);
  if (opset == scope.opsets->end() && domain.empty()) {
    return Fail(ErrorCode::kMalformed, "the model imports no operator set of ai.onnx");
  }
  // Contributed domains are often used without an import; they have one version.
  const int64_t version = opset == scope.opsets->end() ? 1 : opset->second;
  ASSIGN_OR_RETURN(const NodeRule* rule, FindNodeRule(domain, node.op_type(), version));
  RETURN_IF_ERROR(CheckAttributes(*rule, attributes));
  if (std::ranges::any_of(inputs, IsSequence) && !TakesSequences(rule->rewrite)) {
    return Fail(ErrorCode::kMalformed, "an input is a sequence where the operator takes tensors");
  }
  int outputs = node.output_size();
  while (outputs > 0 && node.output(outputs - 1).empty()) --outputs;
  NodeContext context{builder_, *this, scope, *rule, attributes, version, std::move(inputs), outputs};
  return rule->rewrite(context);
}

Result<ValueList> GraphImporter::CallFunction(FunctionProto& function, const NodeProto& node,
                                              const NodeAttributes& attributes, ValueList inputs, const Scope& caller) {
  if (caller.depth >= limits::kRegionDepthMax) {
    return Fail(ErrorCode::kLimitExceeded,
                "functions call each other more than " + std::to_string(limits::kRegionDepthMax) + " deep");
  }
  AttributeBindings bindings;
  for (AttributeProto& fallback : *function.mutable_attribute_proto()) bindings[fallback.name()] = &fallback;
  for (const auto& [name, attribute] : attributes.all()) bindings[name] = attribute;
  OpsetImports opsets;
  for (const OperatorSetIdProto& import : function.opset_import()) {
    opsets[CanonicalDomain(import.domain())] = import.version();
  }
  if (opsets.empty()) opsets = opsets_;
  Scope scope{.opsets = &opsets, .bindings = &bindings, .depth = caller.depth + 1};
  if (inputs.size() > static_cast<size_t>(function.input_size())) {
    return Fail(ErrorCode::kMalformed, "function takes " + std::to_string(function.input_size()) + " inputs, not " +
                                           std::to_string(inputs.size()));
  }
  for (int i = 0; i < function.input_size(); ++i) {
    scope.values[function.input(i)] =
        static_cast<size_t>(i) < inputs.size() ? inputs[static_cast<size_t>(i)] : kNoValue;
  }
  ASSIGN_OR_RETURN(const std::vector<int> order, ExecutionOrder(function.node()));
  NameSet needed;
  for (int i = 0; caller.needed != nullptr && i < std::min(node.output_size(), function.output_size()); ++i)
    if (caller.needed->contains(node.output(i))) needed.insert(function.output(i));
  needed = NeededNames(function.node(), order, std::move(needed));
  scope.needed = &needed;
  for (const int index : order) RETURN_IF_ERROR(VisitNode(*function.mutable_node(index), scope));
  ValueList outputs;
  for (const std::string& name : function.output()) {
    const ValueId* value = scope.Find(name);
    outputs.push_back(value == nullptr ? kNoValue : *value);
  }
  return outputs;
}

Result<ValueList> GraphImporter::ImportBody(GraphProto& graph, const Scope& outer, std::span<const ValueId> inputs,
                                            BodyRuns runs) {
  if (outer.depth >= limits::kRegionDepthMax) {
    return Fail(ErrorCode::kLimitExceeded,
                "graphs are nested more than " + std::to_string(limits::kRegionDepthMax) + " deep");
  }
  if (static_cast<size_t>(graph.input_size()) != inputs.size()) {
    return Fail(ErrorCode::kMalformed, "graph '" + graph.name() + "' has " + std::to_string(graph.input_size()) +
                                           " inputs where " + std::to_string(inputs.size()) + " are passed");
  }
  Scope scope{.parent = &outer, .opsets = outer.opsets, .bindings = outer.bindings, .depth = outer.depth + 1};
  for (size_t i = 0; i < inputs.size(); ++i) {
    scope.values[graph.input(static_cast<int>(i)).name()] = inputs[i];
  }
  RETURN_IF_ERROR(AddInitializers(graph, scope));
  return ImportGraph(graph, scope, runs == BodyRuns::kWithItsNode && builder_.every_run());
}

Result<ImportedModel> GraphImporter::Run() {
  RETURN_IF_ERROR(CollectOpsets());
  GraphProto& graph = *model_.mutable_graph();
  Scope scope{.opsets = &opsets_};
  RETURN_IF_ERROR(AddInputs(graph, scope));
  RETURN_IF_ERROR(AddInitializers(graph, scope));
  ASSIGN_OR_RETURN(const ValueList outputs, ImportGraph(graph, scope, true));
  return Finish(graph, outputs);
}

// Output names live in the values: an output that is an input, or is listed twice, gets a value of its own.
Result<ImportedModel> GraphImporter::Finish(GraphProto& graph, const ValueList& made) {
  ValueList outputs;
  for (ValueId value : made) {
    const ValueInfoProto& info = graph.output(static_cast<int>(outputs.size()));
    if (IsSequence(value)) {
      return Fail(ErrorCode::kUnsupported,
                  "output '" + info.name() + "' is a sequence; sequences are supported inside a model only");
    }
    builder_.SetNodeName(info.name());
    if (builder_.IsRegionInput(value) || std::ranges::find(outputs, value) != outputs.end()) {
      ASSIGN_OR_RETURN(value, builder_.EmitOne(TensorOp::kIdentity, {value}));
    }
    builder_.Rename(value, info.name());
    outputs.push_back(value);
  }
  if (outputs.empty()) return Fail(ErrorCode::kMalformed, "the graph has no outputs");
  RETURN_IF_ERROR(builder_.CloseRegion(outputs));

  ImportedModel imported{.program = builder_.Take(),
                         .overridable = std::move(overridable_),
                         .opset = opsets_.contains("") ? opsets_.at("") : 0,
                         .weight_files = files_.external_paths()};
  RETURN_IF_ERROR(PrepareProgram(imported.program));
  const Function& entry = imported.program.entry();
  const auto list = [&](const std::vector<ValueId>& ids) {
    std::vector<ImportedValue> values;
    for (ValueId id : ids) {
      const Value& value = entry.values[static_cast<size_t>(id)];
      values.push_back(ImportedValue{value.name, value.desc});
    }
    return values;
  };
  imported.inputs = list(entry.regions[0].inputs);
  imported.outputs = list(entry.regions[0].outputs);
  return imported;
}

}  // namespace kiln::onnx
