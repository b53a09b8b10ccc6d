#include "common/bytecode/symbol_definitions.h"
#include "vm-worker/load/passes.h"

namespace kiln {
namespace {

// Marks from the outputs backwards; a node's regions count as its readers. A node is also read by whoever needs a
// symbol that one of its outputs is the first to show.
class Marker {
 public:
  Marker(Program& program, int function, const SymbolDefinitions& definitions)
      : program_(program),
        function_(program.functions[static_cast<size_t>(function)]),
        defines_(definitions.defines[static_cast<size_t>(function)]),
        live_(function_.values.size()),
        needed_(program.symbols.symbol_count()) {}

  // Returns whether a node in the region, or inside it, was dead.
  bool SweepRegion(RegionId id) {
    std::vector<Node> nodes;
    nodes.swap(RegionOf(id).nodes);
    std::vector<Node> kept;
    bool changed = false;
    for (ValueId output : RegionOf(id).outputs) Mark(output);
    for (size_t i = nodes.size(); i-- > 0;) {
      Node& node = nodes[i];
      if (!IsLive(node)) {
        changed = true;
        continue;
      }
      for (ValueId input : node.inputs) Mark(input);
      MarkSymbols(node);
      for (RegionId inner : node.regions) changed |= SweepRegion(inner);
      kept.push_back(std::move(node));
    }
    RegionOf(id).nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
    return changed;
  }

 private:
  Region& RegionOf(RegionId id) { return function_.regions[static_cast<size_t>(id)]; }
  void Mark(ValueId value) {
    if (value != kNoValue) live_[static_cast<size_t>(value)] = true;
  }
  void MarkSymbols(const Node& node) {
    for (const Attribute& attribute : node.attributes.all()) {
      const std::vector<Dim>* dims = std::get_if<std::vector<Dim>>(&attribute.value);
      if (dims == nullptr) continue;
      for (Dim dim : *dims) {
        if (dim.is_const()) continue;
        for (SymbolId symbol : program_.symbols.SymbolsOf(dim)) needed_[static_cast<size_t>(symbol)] = true;
      }
    }
  }
  bool IsLive(const Node& node) const {
    for (ValueId output : node.outputs) {
      if (output == kNoValue) continue;
      if (live_[static_cast<size_t>(output)] || ShowsNeededSymbol(output)) return true;
    }
    return false;
  }
  bool ShowsNeededSymbol(ValueId value) const {
    const std::vector<bool>& defines = defines_[static_cast<size_t>(value)];
    for (size_t i = 0; i < defines.size(); ++i) {
      const Dim dim = (*function_.values[static_cast<size_t>(value)].desc.dims)[i];
      if (defines[i] && needed_[static_cast<size_t>(dim.symbol())]) return true;
    }
    return false;
  }

  Program& program_;
  Function& function_;
  const std::vector<std::vector<bool>>& defines_;
  std::vector<bool> live_;
  std::vector<bool> needed_;
};

}  // namespace

Result<bool> EliminateDeadNodes(Program& program) {
  const SymbolDefinitions definitions = FindSymbolDefinitions(program);
  bool changed = false;
  for (size_t i = 0; i < program.functions.size(); ++i) {
    changed |= Marker(program, static_cast<int>(i), definitions).SweepRegion(0);
  }
  return changed;
}

}  // namespace kiln
