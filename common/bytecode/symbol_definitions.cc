#include "common/bytecode/symbol_definitions.h"

#include <algorithm>
#include <span>

namespace kiln {
namespace {

class Walk {
 public:
  Walk(const Program& program, std::span<const SymbolId> given, int function, SymbolDefinitions* definitions)
      : program_(program),
        function_(program.functions[static_cast<size_t>(function)]),
        defines_(definitions->defines[static_cast<size_t>(function)]),
        unbound_(definitions->unbound[static_cast<size_t>(function)]),
        constraints_(definitions->constraints[static_cast<size_t>(function)]) {
    bound_.assign(program.symbols.symbol_count(), false);
    for (SymbolId id : given) bound_[static_cast<size_t>(id)] = true;
    defines_.resize(function_.values.size());
    unbound_.resize(function_.values.size());
    constraints_.resize(function_.values.size());
    for (const Constraint& constraint : program.symbols.constraints()) {
      std::vector<SymbolId>& symbols = symbols_.emplace_back(program.symbols.SymbolsOf(constraint.left));
      for (const SymbolId id : program.symbols.SymbolsOf(constraint.right)) symbols.push_back(id);
    }
  }

  void Region(RegionId id) {
    const kiln::Region& region = function_.regions[static_cast<size_t>(id)];
    const size_t scope = order_.size();
    for (ValueId input : region.inputs) Value(input);
    // The inputs of a function are bound together, before any of their dims is checked.
    if (id == 0)
      for (ValueId input : region.inputs)
        if (function_.values[static_cast<size_t>(input)].desc.has_rank()) FindUnbound(input);
    for (const Node& node : region.nodes) {
      for (RegionId nested : node.regions) Region(nested);
      for (ValueId output : node.outputs)
        if (output != kNoValue) Value(output);
    }
    for (; order_.size() > scope; order_.pop_back()) bound_[static_cast<size_t>(order_.back())] = false;
  }

 private:
  void Value(ValueId id) {
    const TensorDesc& desc = function_.values[static_cast<size_t>(id)].desc;
    if (!desc.has_rank()) return;
    const size_t known = order_.size();
    for (size_t i = 0; i < desc.dims->size(); ++i) {
      const Dim dim = (*desc.dims)[i];
      if (dim.kind() != Dim::Kind::kSymbol || bound_[static_cast<size_t>(dim.symbol())]) continue;
      bound_[static_cast<size_t>(dim.symbol())] = true;
      order_.push_back(dim.symbol());
      std::vector<bool>& flags = defines_[static_cast<size_t>(id)];
      flags.resize(desc.dims->size());
      flags[i] = true;
    }
    if (order_.size() > known) PlaceConstraints(id, std::span(order_).subspan(known));
    FindUnbound(id);
  }

  void FindUnbound(ValueId id) {
    const std::vector<Dim>& dims = *function_.values[static_cast<size_t>(id)].desc.dims;
    std::vector<bool> flags(dims.size());
    for (size_t i = 0; i < dims.size(); ++i)
      if (dims[i].kind() == Dim::Kind::kExpr)
        flags[i] = program_.symbols.IsTooLarge(dims[i]) ||
                   !std::ranges::all_of(program_.symbols.SymbolsOf(dims[i]),
                                        [&](SymbolId s) { return bound_[static_cast<size_t>(s)]; });
    if (std::ranges::find(flags, true) == flags.end()) flags.clear();
    unbound_[static_cast<size_t>(id)] = std::move(flags);
  }

  void PlaceConstraints(ValueId id, std::span<const SymbolId> defined) {
    for (size_t c = 0; c < symbols_.size(); ++c) {
      const std::vector<SymbolId>& symbols = symbols_[c];
      const bool all = std::ranges::all_of(symbols, [&](SymbolId s) { return bound_[static_cast<size_t>(s)]; });
      if (all && std::ranges::find_first_of(symbols, defined) != symbols.end())
        constraints_[static_cast<size_t>(id)].push_back(static_cast<uint32_t>(c));
    }
  }

  const Program& program_;
  const Function& function_;
  std::vector<std::vector<bool>>& defines_;
  std::vector<std::vector<bool>>& unbound_;
  std::vector<std::vector<uint32_t>>& constraints_;
  std::vector<std::vector<SymbolId>> symbols_;  // of every constraint
  std::vector<bool> bound_;
  std::vector<SymbolId> order_;  // bound symbols, for leaving a region
};

}  // namespace

SymbolDefinitions FindSymbolDefinitions(const Program& program, std::span<const SymbolId> given) {
  SymbolDefinitions definitions;
  definitions.defines.resize(program.functions.size());
  definitions.unbound.resize(program.functions.size());
  definitions.constraints.resize(program.functions.size());
  for (size_t i = 0; i < program.functions.size(); ++i)
    Walk(program, given, static_cast<int>(i), &definitions).Region(0);
  return definitions;
}

}  // namespace kiln
