#include "vm-worker/load/passes.h"

namespace kiln {
namespace {

// Old id -> dense id, in first-seen order; -1 for ids nobody asked for.
class Renumbering {
 public:
  explicit Renumbering(size_t old_count) : to_(old_count, -1) {}
  int32_t Of(int32_t old_id) {
    int32_t& id = to_[static_cast<size_t>(old_id)];
    if (id < 0) {
      id = static_cast<int32_t>(order_.size());
      order_.push_back(old_id);
    }
    return id;
  }
  const std::vector<int32_t>& order() const { return order_; }  // old ids by new id
  bool IsIdentity() const { return order_.size() == to_.size(); }

 private:
  std::vector<int32_t> to_;
  std::vector<int32_t> order_;
};

class FunctionCompactor {
 public:
  explicit FunctionCompactor(Function& function)
      : function_(function), values_(function.values.size()), regions_(function.regions.size()) {}

  bool Run() {
    regions_.Of(0);
    // Regions that are reached are visited in the order of their new ids.
    for (size_t i = 0; i < regions_.order().size(); ++i) {
      Region& region = function_.regions[static_cast<size_t>(regions_.order()[i])];
      Renumber(region.inputs);
      for (Node& node : region.nodes) {
        Renumber(node.inputs);
        Renumber(node.outputs);
        for (RegionId& inner : node.regions) inner = regions_.Of(inner);
      }
      Renumber(region.outputs);
    }
    const bool changed =
        values_.order().size() != function_.values.size() || regions_.order().size() != function_.regions.size();
    std::vector<Value> values;
    for (int32_t old_id : values_.order()) values.push_back(std::move(function_.values[static_cast<size_t>(old_id)]));
    function_.values = std::move(values);
    std::vector<Region> regions;
    for (int32_t old_id : regions_.order())
      regions.push_back(std::move(function_.regions[static_cast<size_t>(old_id)]));
    function_.regions = std::move(regions);
    return changed;
  }

 private:
  void Renumber(std::vector<ValueId>& ids) {
    for (ValueId& id : ids) {
      if (id != kNoValue) id = values_.Of(id);
    }
  }

  Function& function_;
  Renumbering values_;
  Renumbering regions_;
};

template <class F>
void ForEachNode(Program& program, F&& visit) {
  for (Function& function : program.functions) {
    for (Region& region : function.regions) {
      for (Node& node : region.nodes) visit(node);
    }
  }
}

bool DropConstants(Program& program) {
  Renumbering ids(program.constants.size());
  ForEachNode(program, [&](Node& node) {
    const Attributes attributes = node.attributes;
    for (const Attribute& attribute : attributes.all()) {
      if (const ConstantId* id = std::get_if<ConstantId>(&attribute.value))
        node.attributes.Set(attribute.name, ids.Of(*id));
    }
  });
  const bool changed = ids.order().size() != program.constants.size();
  std::vector<Constant> constants;
  for (int32_t old_id : ids.order()) constants.push_back(std::move(program.constants[static_cast<size_t>(old_id)]));
  program.constants = std::move(constants);
  return changed;
}

// Symbols of descs and attributes, and those of the constraints between them.
class SymbolCompactor {
 public:
  explicit SymbolCompactor(Program& program) : program_(program), used_(program.symbols.symbol_count()) {}

  Result<bool> Run() {
    ForEachDim([&](Dim& dim) { Note(dim); });
    for (const Constraint& constraint : program_.symbols.constraints()) {
      Note(constraint.left);
      Note(constraint.right);
    }
    bool all_used = true;
    SymbolTable table;
    std::vector<Dim> mapping(used_.size());
    for (size_t i = 0; i < used_.size(); ++i) {
      all_used = all_used && used_[i];
      if (!used_[i]) continue;
      const Symbol& symbol = program_.symbols.symbol(static_cast<SymbolId>(i));
      ASSIGN_OR_RETURN(mapping[i], table.AddSymbol(symbol.name, symbol.range, symbol.divisor));
    }
    if (all_used) return false;
    ForEachDim([&](Dim& dim) { dim = table.Translate(dim, program_.symbols, mapping); });
    for (const Constraint& constraint : program_.symbols.constraints()) {
      table.AddConstraint(Constraint{constraint.kind, table.Translate(constraint.left, program_.symbols, mapping),
                                     table.Translate(constraint.right, program_.symbols, mapping)});
    }
    program_.symbols = std::move(table);
    return true;
  }

 private:
  void Note(Dim dim) {
    if (dim.is_const()) return;
    for (SymbolId id : program_.symbols.SymbolsOf(dim)) used_[static_cast<size_t>(id)] = true;
  }

  template <class F>
  void ForEachDim(F&& visit) {
    for (Function& function : program_.functions) {
      for (Value& value : function.values) {
        if (!value.desc.dims) continue;
        for (Dim& dim : *value.desc.dims) visit(dim);
      }
    }
    ForEachNode(program_, [&](Node& node) {
      const Attributes attributes = node.attributes;
      for (const Attribute& attribute : attributes.all()) {
        const std::vector<Dim>* dims = std::get_if<std::vector<Dim>>(&attribute.value);
        if (dims == nullptr) continue;
        std::vector<Dim> visited = *dims;
        for (Dim& dim : visited) visit(dim);
        node.attributes.Set(attribute.name, std::move(visited));
      }
    });
  }

  Program& program_;
  std::vector<bool> used_;
};

}  // namespace

Result<bool> DropUnused(Program& program) {
  bool changed = false;
  for (Function& function : program.functions) changed |= FunctionCompactor(function).Run();
  changed |= DropConstants(program);
  ASSIGN_OR_RETURN(const bool symbols, SymbolCompactor(program).Run());
  return changed || symbols;
}

}  // namespace kiln
