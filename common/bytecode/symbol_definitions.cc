#include "common/bytecode/symbol_definitions.h"

namespace kiln {
namespace {

class Walk {
 public:
  Walk(const Program& program, int function, std::vector<std::vector<bool>>* defines)
      : function_(program.functions[static_cast<size_t>(function)]), defines_(*defines) {
    bound_.assign(program.symbols.symbol_count(), false);
    defines_.resize(function_.values.size());
  }

  void Region(RegionId id) {
    const kiln::Region& region = function_.regions[static_cast<size_t>(id)];
    const size_t scope = order_.size();
    for (ValueId input : region.inputs) Value(input);
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
    for (size_t i = 0; i < desc.dims->size(); ++i) {
      const Dim dim = (*desc.dims)[i];
      if (dim.kind() != Dim::Kind::kSymbol || bound_[static_cast<size_t>(dim.symbol())]) continue;
      bound_[static_cast<size_t>(dim.symbol())] = true;
      order_.push_back(dim.symbol());
      std::vector<bool>& flags = defines_[static_cast<size_t>(id)];
      flags.resize(desc.dims->size());
      flags[i] = true;
    }
  }

  const Function& function_;
  std::vector<std::vector<bool>>& defines_;
  std::vector<bool> bound_;
  std::vector<SymbolId> order_;  // bound symbols, for leaving a region
};

}  // namespace

SymbolDefinitions FindSymbolDefinitions(const Program& program) {
  SymbolDefinitions definitions;
  definitions.defines.resize(program.functions.size());
  for (size_t i = 0; i < program.functions.size(); ++i)
    Walk(program, static_cast<int>(i), &definitions.defines[i]).Region(0);
  return definitions;
}

}  // namespace kiln
