#include <algorithm>

#include "vm-worker/load/fold_node.h"
#include "vm-worker/load/passes.h"
#include "vm-worker/load/value_facts.h"

namespace kiln {
namespace {

class Folder {
 public:
  Folder(Program& program, Function& function) : program_(program), function_(function) {
    facts_.Resize(function.values.size());
  }

  Result<bool> Run() {
    RETURN_IF_ERROR(FoldRegion(0));
    return changed_;
  }

 private:
  Status FoldRegion(RegionId id) {
    std::vector<Node> nodes;
    nodes.swap(function_.regions[static_cast<size_t>(id)].nodes);
    std::vector<Node> kept;
    kept.reserve(nodes.size());
    for (Node& node : nodes) {
      for (RegionId inner : node.regions) RETURN_IF_ERROR(FoldRegion(inner));
      if (!node.regions.empty() || !FoldOne(node, kept)) kept.push_back(std::move(node));
    }
    function_.regions[static_cast<size_t>(id)].nodes = std::move(kept);
    return {};
  }

  // Returns whether `kept` received the node's replacement.
  bool FoldOne(Node& node, std::vector<Node>& kept) {
    if (node.op == TensorOp::kConstant) {
      NoteConstant(node.outputs[0], node.attributes.Constant("value"));
      return false;
    }
    const size_t symbols = program_.symbols.symbol_count();
    auto node_facts = InferNode(program_, function_, node, facts_);
    if (!node_facts.has_value()) return false;  // it fails when it runs, if it runs
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      if (node_facts->known[i] && !OlderThan(symbols, *node_facts->known[i])) node_facts->known[i].reset();
      Sharpen(node.outputs[i], node_facts->outputs[i]);
    }
    if (node.outputs.empty()) return false;
    std::optional<FoldedNode> folded = FoldNode(program_, node, *node_facts, facts_);
    if (!folded) {
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] != kNoValue) Known(node.outputs[i]) = std::move(node_facts->known[i]);
      }
      return false;
    }
    Replace(node, *folded, kept);
    changed_ = true;
    return true;
  }

  void Replace(const Node& node, FoldedNode& folded, std::vector<Node>& kept) {
    if (!folded.is_constant()) {
      kept.push_back(ShapeVectorNodeOf(folded, node.name));
      kept.back().outputs = node.outputs;
      Known(node.outputs[0]) = folded.dims;
      const Dims dims = folded.scalar ? Dims{} : Dims{static_cast<int64_t>(folded.dims.size())};
      function_.values[static_cast<size_t>(node.outputs[0])].desc.dims = StaticDesc(DType::kI64, dims).dims;
      return;
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const bool immediate = Program::IsImmediate(folded.tensors[i]);
      const Value& value = function_.values[static_cast<size_t>(node.outputs[i])];
      program_.constants.push_back(Constant{value.name, std::move(folded.tensors[i]), immediate});
      const ConstantId constant = static_cast<ConstantId>(program_.constants.size() - 1);
      kept.push_back(ConstantNodeOf(constant, node.name));
      kept.back().outputs = {node.outputs[i]};
      NoteConstant(node.outputs[i], constant);
    }
  }

  void NoteConstant(ValueId value, ConstantId constant) {
    const Tensor& tensor = program_.constants[static_cast<size_t>(constant)].tensor;
    facts_.constant[static_cast<size_t>(value)] = constant;
    Known(value) = KnownOfTensor(tensor);
    function_.values[static_cast<size_t>(value)].desc.dims = StaticDesc(tensor.dtype(), tensor.dims()).dims;
  }

  // Takes over what the shape rule now knows to be constant. A size that no tensor can have stays unsaid: the node
  // fails when it runs, if it runs.
  void Sharpen(ValueId id, const TensorDesc& inferred) {
    TensorDesc& desc = function_.values[static_cast<size_t>(id)].desc;
    if (!inferred.has_rank() || (desc.has_rank() && desc.rank() != inferred.rank())) return;
    std::vector<Dim> dims = desc.has_rank() ? *desc.dims : *inferred.dims;
    for (size_t i = 0; i < dims.size(); ++i)
      if ((*inferred.dims)[i].is_const() && !dims[i].is_const()) dims[i] = (*inferred.dims)[i];
    if ((desc.has_rank() && dims == *desc.dims) || !IsPossible(program_.symbols, desc.dtype, dims)) return;
    desc.dims = std::move(dims);
    changed_ = true;
  }

  // Symbols that this pass made describe nothing that exists.
  bool OlderThan(size_t symbols, const KnownValues& known) const {
    return std::ranges::all_of(known, [&](Dim dim) {
      if (dim.is_const()) return true;
      const std::vector<SymbolId> used = program_.symbols.SymbolsOf(dim);
      return used.empty() || static_cast<size_t>(used.back()) < symbols;
    });
  }

  std::optional<KnownValues>& Known(ValueId value) { return facts_.known[static_cast<size_t>(value)]; }

  Program& program_;
  Function& function_;
  ValueFacts facts_;
  bool changed_ = false;
};

}  // namespace

Result<bool> FoldKnownNodes(Program& program) {
  bool changed = false;
  for (Function& function : program.functions) {
    ASSIGN_OR_RETURN(const bool folded, Folder(program, function).Run());
    changed = changed || folded;
  }
  return changed;
}

}  // namespace kiln
