#include "vm-worker/onnx/program_builder.h"

#include <algorithm>

#include "vm-worker/load/failing_node.h"
#include "vm-worker/load/fold_node.h"

namespace kiln::onnx {

ProgramBuilder::ProgramBuilder(std::string_view name) {
  program_.name = name;
  program_.functions.push_back(Function{.name = "main"});
  OpenRegion();
}

const Tensor* ProgramBuilder::ConstantTensor(ValueId value) const {
  const ConstantId id = facts_.ConstantOf(value);
  return id < 0 ? nullptr : &program_.constants[static_cast<size_t>(id)].tensor;
}

std::optional<std::vector<int64_t>> ProgramBuilder::KnownInts(ValueId value) const {
  if (value == kNoValue || !Known(value)) return std::nullopt;
  std::vector<int64_t> values;
  for (Dim dim : *Known(value)) {
    if (!dim.is_const()) return std::nullopt;
    values.push_back(dim.value());
  }
  return values;
}

ValueId ProgramBuilder::AddSequence(ImportedSequence sequence) {
  sequences_.push_back(std::move(sequence));
  return kNoValue - static_cast<ValueId>(sequences_.size());
}

const ImportedSequence& ProgramBuilder::Sequence(ValueId handle) const {
  return sequences_[static_cast<size_t>(kNoValue - handle - 1)];
}

ValueId ProgramBuilder::NewValue(std::string_view name, TensorDesc desc) {
  Function& f = function();
  f.values.push_back(Value{std::string(name), std::move(desc)});
  facts_.Resize(f.values.size());
  region_of_.push_back(open_.back());
  return static_cast<ValueId>(f.values.size() - 1);
}

ConstantId ProgramBuilder::AddConstant(Tensor tensor, std::string_view name) {
  const bool immediate = Program::IsImmediate(tensor);
  program_.constants.push_back(Constant{std::string(name), std::move(tensor), immediate});
  return static_cast<ConstantId>(program_.constants.size() - 1);
}

ValueId ProgramBuilder::EmitConstant(Tensor tensor, std::string_view name) {
  const TensorDesc desc = StaticDesc(tensor.dtype(), tensor.dims());
  std::optional<KnownValues> known = KnownOfTensor(tensor);
  const ConstantId id = AddConstant(std::move(tensor), name.empty() ? node_name_ : name);
  const ValueId value = NewValue(name.empty() ? node_name_ : name, desc);
  facts_.constant[static_cast<size_t>(value)] = id;
  facts_.known[static_cast<size_t>(value)] = std::move(known);
  Node node = ConstantNodeOf(id, node_name_);
  node.outputs = {value};
  region().nodes.push_back(std::move(node));
  ++emitted_nodes_;
  return value;
}

ValueId ProgramBuilder::EmitInts(std::span<const int64_t> values) {
  return EmitConstant(Tensor::Of<int64_t>(DType::kI64, Dims{static_cast<int64_t>(values.size())}, values));
}

ValueId ProgramBuilder::EmitInt(int64_t value) {
  return EmitConstant(Tensor::Of<int64_t>(DType::kI64, Dims{}, std::span(&value, 1)));
}

ValueId ProgramBuilder::EmitScalar(double value, DType dtype) {
  Tensor tensor = Tensor::Allocate(dtype, Dims{});
  DispatchDType(dtype, [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T>) {
      *tensor.ref.as<T>() = static_cast<T>(value);
    } else {
      *tensor.ref.as<T>() = T(static_cast<float>(value));
    }
  });
  return EmitConstant(std::move(tensor));
}

// The folded outputs of a node, or an empty list when it has to run.
ValueList ProgramBuilder::TryFold(const Node& node, const NodeFacts& facts) {
  std::optional<FoldedNode> folded = FoldNode(program_, node, facts, facts_);
  ValueList values;
  if (!folded) return values;
  if (folded->is_constant()) {
    for (Tensor& tensor : folded->tensors) values.push_back(EmitConstant(std::move(tensor)));
    return values;
  }
  const ValueId value = NewValue(node_name_, facts.outputs[0]);
  facts_.known[static_cast<size_t>(value)] = folded->dims;
  Node vector = ShapeVectorNodeOf(*folded, node_name_);
  vector.outputs = {value};
  region().nodes.push_back(std::move(vector));
  values.push_back(value);
  return values;
}

Result<ValueList> ProgramBuilder::Emit(TensorOp op, ValueList inputs, Attributes attributes, int outputs) {
  while (!inputs.empty() && inputs.back() == kNoValue) inputs.pop_back();
  const TensorOpInfo& info = OpInfo(op);
  const int count = static_cast<int>(inputs.size());
  if (count < info.min_inputs || count > info.max_inputs || outputs < info.min_outputs || outputs > info.max_outputs) {
    return Fail(ErrorCode::kInvalidArgument, std::string(info.name) + " with " + std::to_string(count) +
                                                 " inputs and " + std::to_string(outputs) +
                                                 " outputs does not follow the operator");
  }
  for (int i = 0; i < info.min_inputs; ++i) {
    if (inputs[static_cast<size_t>(i)] == kNoValue && op != TensorOp::kLoop && op != TensorOp::kResize) {
      return Fail(ErrorCode::kInvalidArgument,
                  std::string(info.name) + " lacks its required input " + std::to_string(i));
    }
  }
  ++emitted_nodes_;
  Node node{.op = op, .name = node_name_, .inputs = std::move(inputs), .attributes = std::move(attributes)};
  node.outputs.assign(static_cast<size_t>(outputs), 0);
  Result<NodeFacts> facts = InferNode(program_, function(), node, facts_);
  if (!facts.has_value()) {
    ASSIGN_OR_RETURN(facts, AfterFailure(node, std::move(facts.error())));
  } else if (!every_run_ && !ArePossible(facts->outputs)) {
    LeaveUnsaid(*facts);
  } else if (ValueList folded = TryFold(node, *facts); !folded.empty()) {
    return folded;
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    node.outputs[i] = NewValue(node_name_, std::move(facts->outputs[i]));
    facts_.known[static_cast<size_t>(node.outputs[i])] = std::move(facts->known[i]);
  }
  ValueList values = node.outputs;
  region().nodes.push_back(std::move(node));
  return values;
}

std::string ProgramBuilder::RangeSource(const std::string& symbol) const {
  const auto found = range_sources_.find(symbol);
  return found == range_sources_.end() ? "" : found->second;
}

bool ProgramBuilder::ArePossible(const std::vector<TensorDesc>& descs) const {
  return std::ranges::all_of(
      descs, [&](const TensorDesc& desc) { return !desc.has_rank() || IsPossible(symbols(), desc.dtype, *desc.dims); });
}

void ProgramBuilder::LeaveUnsaid(NodeFacts& facts) {
  for (TensorDesc& desc : facts.outputs)
    if (desc.has_rank())
      for (Dim& dim : *desc.dims) dim = symbols().FreshSymbol();
  facts.known.assign(facts.outputs.size(), std::nullopt);
}

Result<NodeFacts> ProgramBuilder::AfterFailure(const Node& node, Error error) {
  if (!every_run_) {
    if (auto facts = FactsOfFailingNode(program_, function(), node, facts_, error)) return std::move(*facts);
  }
  if (range_sources_.empty()) return std::unexpected(std::move(error));
  std::string sources;
  for (const SymbolId id : SymbolsAtFault(program_, function(), node, facts_, error)) {
    const std::string source = RangeSource(symbols().symbol(id).name);
    if (!source.empty()) sources += "; " + symbols().SymbolText(id) + " is limited by " + source;
  }
  error.message += sources;
  return std::unexpected(std::move(error));
}

Result<ValueId> ProgramBuilder::EmitOne(TensorOp op, ValueList inputs, Attributes attributes) {
  ASSIGN_OR_RETURN(ValueList outputs, Emit(op, std::move(inputs), std::move(attributes)));
  return outputs[0];
}

ValueList ProgramBuilder::EmitControl(TensorOp op, ValueList inputs, Attributes attributes,
                                      std::vector<RegionId> regions, std::vector<TensorDesc> outputs) {
  ++emitted_nodes_;
  Node node{.op = op,
            .name = node_name_,
            .inputs = std::move(inputs),
            .attributes = std::move(attributes),
            .regions = std::move(regions)};
  for (TensorDesc& desc : outputs) node.outputs.push_back(NewValue(node_name_, std::move(desc)));
  ValueList values = node.outputs;
  region().nodes.push_back(std::move(node));
  return values;
}

RegionId ProgramBuilder::OpenRegion() {
  function().regions.emplace_back();
  open_.push_back(static_cast<RegionId>(function().regions.size() - 1));
  return open_.back();
}

ValueId ProgramBuilder::AddRegionInput(std::string_view name, TensorDesc desc) {
  const ValueId value = NewValue(name, std::move(desc));
  region().inputs.push_back(value);
  return value;
}

bool ProgramBuilder::IsRegionInput(ValueId value) const {
  const std::vector<ValueId>& inputs = function().regions[static_cast<size_t>(open_.back())].inputs;
  return std::ranges::find(inputs, value) != inputs.end();
}

Result<ValueList> ProgramBuilder::CloseRegion(ValueList outputs) {
  if (std::ranges::any_of(outputs, IsSequence)) {
    return Fail(ErrorCode::kUnsupported, "a sequence leaves a branch or a loop's body here; only tensors may");
  }
  for (ValueId& output : outputs) {
    if (DefinedHere(output)) continue;
    const std::optional<KnownValues> known = Known(output);
    const TensorDesc desc = Desc(output);
    const ValueId copy = NewValue(Name(output), desc);
    facts_.known[static_cast<size_t>(copy)] = known;
    region().nodes.push_back(
        Node{.op = TensorOp::kIdentity, .name = node_name_, .inputs = {output}, .outputs = {copy}});
    output = copy;
  }
  region().outputs = outputs;
  open_.pop_back();
  return outputs;
}

ProgramBuilder::Snapshot ProgramBuilder::Save() const {
  const Function& f = function();
  return Snapshot{f.values.size(),
                  f.regions.size(),
                  program_.constants.size(),
                  f.regions[static_cast<size_t>(open_.back())].nodes.size(),
                  open_.size(),
                  program_.symbols};
}

void ProgramBuilder::Restore(Snapshot snapshot) {
  Function& f = function();
  open_.resize(snapshot.open);
  f.values.resize(snapshot.values);
  f.regions.resize(snapshot.regions);
  program_.constants.resize(snapshot.constants);
  program_.symbols = std::move(snapshot.symbols);
  facts_.Resize(snapshot.values);
  region_of_.resize(snapshot.values);
  region().nodes.resize(snapshot.nodes);
}

}  // namespace kiln::onnx
