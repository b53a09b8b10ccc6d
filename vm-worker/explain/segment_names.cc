#include "vm-worker/explain/segment_names.h"

#include <algorithm>

#include "common/bytecode/emit.h"

namespace kiln {

SegmentNames::SegmentNames(const LoadedProgram& program, size_t segment)
    : program_(program), site_(program.sites()[segment]), segment_(program.segments()[segment]) {
  // The canonical form keeps the order of the site's nodes; only constants move to their first use.
  const Region& region =
      program.program().functions[static_cast<size_t>(site_.function)].regions[static_cast<size_t>(site_.region)];
  auto source = region.nodes.begin() + site_.first_node;
  const auto end = region.nodes.begin() + site_.end_node;
  for (const Node& node : segment_.body.entry().regions[0].nodes) {
    const Node* from = nullptr;
    if (!IsRematerialised(node.op)) {
      while (source != end && IsRematerialised(source->op)) ++source;
      if (source != end) from = &*source++;
    }
    sources_.push_back(from);
    nodes_.push_back({from == nullptr ? "" : from->name, std::string(OpInfo(node.op).name)});
  }
  for (const SymbolSource& symbol : segment_.symbols) {
    std::string name = NameOf(symbol);
    while (std::ranges::find(symbols_, name) != symbols_.end()) name += "'";
    symbols_.push_back(std::move(name));
  }
}

const Node* SegmentNames::Maker(int32_t body_value, size_t* output) const {
  const std::vector<Node>& nodes = segment_.body.entry().regions[0].nodes;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const auto found = std::ranges::find(nodes[n].outputs, body_value);
    if (found == nodes[n].outputs.end()) continue;
    *output = static_cast<size_t>(found - nodes[n].outputs.begin());
    return sources_[n];
  }
  return nullptr;
}

// The model's name of the symbol that this dim shows.
std::string SegmentNames::NameOf(const SymbolSource& source) const {
  const SymbolTable& symbols = program_.program().symbols;
  const auto in_desc = [&](ValueId value) {
    const TensorDesc& desc =
        program_.program().functions[static_cast<size_t>(site_.function)].values[static_cast<size_t>(value)].desc;
    const auto dim = static_cast<size_t>(source.dim);
    return desc.has_rank() && dim < desc.dims->size() ? symbols.ToString((*desc.dims)[dim]) : std::string("?");
  };
  switch (source.kind) {
    case SymbolSource::Kind::kInputDim:
      return in_desc(site_.inputs[static_cast<size_t>(source.index)]);
    case SymbolSource::Kind::kParameter:
      return symbols.ToString(site_.parameters[static_cast<size_t>(source.index)]);
    case SymbolSource::Kind::kValueDim: {
      size_t output = 0;
      const Node* maker = Maker(source.index, &output);
      return maker == nullptr ? "inside" : in_desc(maker->outputs[output]);
    }
  }
  return "?";
}

std::string SegmentNames::Input(size_t input) const {
  const ValueId value = site_.inputs[input];
  const std::string& name =
      program_.program().functions[static_cast<size_t>(site_.function)].values[static_cast<size_t>(value)].name;
  return name.empty() ? "value " + std::to_string(value) : name;
}

std::string SegmentNames::SymbolSourceText(size_t symbol) const {
  const SymbolSource& source = segment_.symbols[symbol];
  switch (source.kind) {
    case SymbolSource::Kind::kInputDim:
      return symbols_[symbol] + ": dim " + std::to_string(source.dim) + " of " +
             Input(static_cast<size_t>(source.index));
    case SymbolSource::Kind::kParameter:
      return symbols_[symbol] + ": passed in, no input of the segment shows it";
    case SymbolSource::Kind::kValueDim: {
      size_t output = 0;
      const Node* maker = Maker(source.index, &output);
      return symbols_[symbol] + ": no input shows it; known once " +
             (maker == nullptr ? "a node" : std::string(OpInfo(maker->op).name) + " \"" + maker->name + "\"") +
             " has run (dim " + std::to_string(source.dim) + " of its output " + std::to_string(output) + ")";
    }
  }
  return symbols_[symbol];
}

std::string SegmentNames::Values(std::span<const int64_t> symbol_values) const {
  std::string text;
  for (size_t i = 0; i < std::min(symbol_values.size(), symbols_.size()); ++i)
    if (symbol_values[i] >= 0)
      text += (text.empty() ? "" : ", ") + symbols_[i] + "=" + std::to_string(symbol_values[i]);
  return text;
}

std::string SegmentNames::DimText(const SymbolTable& from, Dim dim) const {
  if (dim.is_const()) return std::to_string(dim.value());
  SymbolTable named;
  std::vector<Dim> mapping;
  for (size_t i = 0; i < from.symbol_count(); ++i) {
    const Symbol& symbol = from.symbol(static_cast<SymbolId>(i));
    const Result<Dim> added =
        named.AddSymbol(i < symbols_.size() ? symbols_[i] : symbol.name, symbol.range, symbol.divisor);
    mapping.push_back(added.has_value() ? *added : named.FreshSymbol(symbol.range, symbol.divisor));
  }
  return named.ToString(named.Translate(dim, from, mapping));
}

std::string SegmentNames::ConstraintText(const SymbolTable& from, const Constraint& constraint) const {
  const std::string left = DimText(from, constraint.left), right = DimText(from, constraint.right);
  switch (constraint.kind) {
    case ConstraintKind::kEqual:
      return left + " = " + right;
    case ConstraintKind::kNotEqual:
      return left + " is not " + right;
    case ConstraintKind::kLessEqual:
      return left + " <= " + right;
    case ConstraintKind::kDivides:
      return left + " divides " + right;
    case ConstraintKind::kBroadcasts:
      return left + " is " + right + ", or one of them is 1";
  }
  return left;
}

}  // namespace kiln
