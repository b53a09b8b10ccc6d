#include "common/segment/canonical.h"

#include <algorithm>
#include <map>

#include "common/bytecode/emit.h"

namespace kiln {
namespace {

class Builder {
 public:
  Builder(const Program& program, const SymbolDefinitions& definitions, SegmentSite* site)
      : program_(program),
        definitions_(definitions.defines[static_cast<size_t>(site->function)]),
        site_(*site),
        function_(program.functions[static_cast<size_t>(site->function)]),
        mapping_(program.symbols.symbol_count(), Dim::Const(-1)),
        mapped_(program.symbols.symbol_count(), false) {
    for (const Region& region : function_.regions)
      for (const Node& node : region.nodes)
        if (IsRematerialised(node.op)) maker_[node.outputs[0]] = &node;
    const Region& home = function_.regions[static_cast<size_t>(site->region)];
    nodes_ =
        std::span(home.nodes)
            .subspan(static_cast<size_t>(site->first_node), static_cast<size_t>(site->end_node - site->first_node));
    segment_.body.functions.resize(1);
    segment_.body.functions[0].regions.resize(1);
  }

  Segment Build() {
    site_.inputs.clear();
    site_.weights.clear();
    site_.parameters.clear();
    FindInputs();
    for (size_t i = 0; i < site_.inputs.size(); ++i) InputSymbols(i);
    for (ValueId input : site_.inputs) BodyRegion().inputs.push_back(CopyValue(input));
    segment_.runtime_inputs = static_cast<int>(site_.inputs.size());
    for (ConstantId weight : site_.weights) {
      const Tensor& tensor = program_.constants[static_cast<size_t>(weight)].tensor;
      weight_value_[weight] = AddValue(StaticDesc(tensor.dtype(), tensor.dims()));
      BodyRegion().inputs.push_back(weight_value_[weight]);
    }
    for (const Node& node : nodes_)
      if (!IsRematerialised(node.op)) CopyNode(node);
    for (ValueId output : site_.outputs) BodyRegion().outputs.push_back(value_.at(output));
    CopyConstraints();
    segment_.parameters = static_cast<int>(site_.parameters.size());
    return std::move(segment_);
  }

 private:
  Region& BodyRegion() { return segment_.body.functions[0].regions[0]; }

  // Run-time inputs and weights in order of first use.
  void FindInputs() {
    std::map<ValueId, bool> seen;
    std::map<ConstantId, bool> seen_weight;
    for (const Node& node : nodes_)
      for (ValueId output : node.outputs) seen[output] = true;
    for (const Node& node : nodes_) {
      for (ValueId input : node.inputs) {
        if (input == kNoValue) continue;
        if (auto made = maker_.find(input); made != maker_.end()) {
          const ConstantId id = made->second->attributes.Constant("value");
          if (made->second->op == TensorOp::kConstant && !program_.constants[static_cast<size_t>(id)].is_immediate &&
              !seen_weight[id]) {
            seen_weight[id] = true;
            site_.weights.push_back(id);
          }
        } else if (!seen[input]) {
          seen[input] = true;
          site_.inputs.push_back(input);
        }
      }
    }
  }

  const TensorDesc& DescOf(ValueId value) const { return function_.values[static_cast<size_t>(value)].desc; }

  // Symbols that a run-time input shows directly come first.
  void InputSymbols(size_t index) {
    const std::vector<Dim>& dims = *DescOf(site_.inputs[index]).dims;
    for (size_t i = 0; i < dims.size(); ++i)
      if (dims[i].kind() == Dim::Kind::kSymbol)
        MapSymbol(dims[i].symbol(),
                  {SymbolSource::Kind::kInputDim, static_cast<int32_t>(index), static_cast<int32_t>(i)});
  }

  void MapSymbol(SymbolId id, SymbolSource source) {
    if (mapped_[static_cast<size_t>(id)]) return;
    mapped_[static_cast<size_t>(id)] = true;
    const Symbol& symbol = program_.symbols.symbol(id);
    mapping_[static_cast<size_t>(id)] = segment_.body.symbols.FreshSymbol(symbol.range, symbol.divisor);
    segment_.symbols.push_back(source);
  }

  Dim MapDim(Dim dim) {
    if (dim.is_const()) return dim;
    for (SymbolId id : program_.symbols.SymbolsOf(dim)) {
      if (mapped_[static_cast<size_t>(id)]) continue;
      MapSymbol(id, {SymbolSource::Kind::kParameter, static_cast<int32_t>(site_.parameters.size()), 0});
      site_.parameters.push_back(program_.symbols.SymbolDim(id));
    }
    return segment_.body.symbols.Translate(dim, program_.symbols, mapping_);
  }

  ValueId AddValue(TensorDesc desc) {
    std::vector<Value>& values = segment_.body.functions[0].values;
    values.push_back({"", std::move(desc)});
    return static_cast<ValueId>(values.size() - 1);
  }

  // The value of the body for a value of the model, made at its definition.
  ValueId CopyValue(ValueId value) {
    const TensorDesc& from = DescOf(value);
    const std::vector<bool>& defines = definitions_[static_cast<size_t>(value)];
    const ValueId id = AddValue({.dtype = from.dtype, .dims = std::vector<Dim>{}});
    for (size_t i = 0; i < from.dims->size(); ++i) {
      const Dim dim = (*from.dims)[i];
      if (i < defines.size() && defines[i])
        MapSymbol(dim.symbol(), {SymbolSource::Kind::kValueDim, id, static_cast<int32_t>(i)});
      const Dim mapped = MapDim(dim);
      segment_.body.functions[0].values[static_cast<size_t>(id)].desc.dims->push_back(mapped);
    }
    value_[value] = id;
    return id;
  }

  ConstantId CopyConstant(ConstantId id) {
    auto [place, first] = constant_.emplace(id, static_cast<ConstantId>(segment_.body.constants.size()));
    if (first) segment_.body.constants.push_back({"", program_.constants[static_cast<size_t>(id)].tensor, true});
    return place->second;
  }

  Attributes CopyAttributes(const Attributes& from) {
    Attributes to;
    for (const Attribute& attribute : from.all()) {
      if (const ConstantId* constant = std::get_if<ConstantId>(&attribute.value)) {
        to.Set(attribute.name, CopyConstant(*constant));
      } else if (const std::vector<Dim>* dims = std::get_if<std::vector<Dim>>(&attribute.value)) {
        std::vector<Dim> mapped;
        for (Dim dim : *dims) mapped.push_back(MapDim(dim));
        to.Set(attribute.name, std::move(mapped));
      } else {
        to.Set(attribute.name, attribute.value);
      }
    }
    return to;
  }

  ValueId Input(ValueId value) {
    if (value == kNoValue) return kNoValue;
    if (auto known = value_.find(value); known != value_.end()) return known->second;
    const Node& maker = *maker_.at(value);
    if (maker.op == TensorOp::kConstant)
      if (auto weight = weight_value_.find(maker.attributes.Constant("value")); weight != weight_value_.end())
        return weight->second;
    return CopyNode(maker);
  }

  ValueId CopyNode(const Node& from) {
    Node node{.op = from.op};
    for (ValueId input : from.inputs) node.inputs.push_back(Input(input));
    node.attributes = CopyAttributes(from.attributes);
    for (ValueId output : from.outputs) node.outputs.push_back(output == kNoValue ? kNoValue : CopyValue(output));
    BodyRegion().nodes.push_back(std::move(node));
    return BodyRegion().nodes.back().outputs.empty() ? kNoValue : BodyRegion().nodes.back().outputs[0];
  }

  // Facts about the segment's symbols alone, in an order of their own.
  void CopyConstraints() {
    std::map<std::vector<int64_t>, Constraint> sorted;
    SymbolTable& symbols = segment_.body.symbols;
    for (const Constraint& constraint : program_.symbols.constraints()) {
      auto all_mapped = [&](Dim dim) {
        if (dim.is_const()) return true;
        const std::vector<SymbolId> ids = program_.symbols.SymbolsOf(dim);
        return std::ranges::all_of(ids, [&](SymbolId id) { return mapped_[static_cast<size_t>(id)]; });
      };
      if (!all_mapped(constraint.left) || !all_mapped(constraint.right)) continue;
      const Constraint copy{constraint.kind, symbols.Translate(constraint.left, program_.symbols, mapping_),
                            symbols.Translate(constraint.right, program_.symbols, mapping_)};
      std::vector<int64_t> key{static_cast<int64_t>(copy.kind)};
      for (Dim dim : {copy.left, copy.right}) {
        const std::vector<int64_t> code = symbols.Encode(dim);
        key.push_back(static_cast<int64_t>(code.size()));
        key.insert(key.end(), code.begin(), code.end());
      }
      sorted.emplace(std::move(key), copy);
    }
    for (const auto& [key, constraint] : sorted) symbols.AddConstraint(constraint);
  }

  const Program& program_;
  const std::vector<std::vector<bool>>& definitions_;
  SegmentSite& site_;
  const Function& function_;
  std::span<const Node> nodes_;
  Segment segment_;
  std::vector<Dim> mapping_;  // model symbol -> body dim
  std::vector<bool> mapped_;
  std::map<ValueId, const Node*> maker_;  // Constant and ShapeVector nodes of the function
  std::map<ValueId, ValueId> value_;
  std::map<ConstantId, ValueId> weight_value_;
  std::map<ConstantId, ConstantId> constant_;
};

}  // namespace

Segment BuildCanonical(const Program& program, const SymbolDefinitions& definitions, SegmentSite* site) {
  return Builder(program, definitions, site).Build();
}

}  // namespace kiln
