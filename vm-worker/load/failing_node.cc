#include "vm-worker/load/failing_node.h"

#include <set>

namespace kiln {
namespace {

// The inputs of a node as a rule is shown them when less is known.
class Loosened {
 public:
  explicit Loosened(const InputFacts& inputs) {
    for (const TensorDesc* desc : inputs.descs) descs_.push_back(desc == nullptr ? TensorDesc{} : *desc);
    for (size_t i = 0; i < inputs.descs.size(); ++i) present_.push_back(inputs.descs[i] != nullptr);
  }

  void ForgetSizes(SymbolTable& symbols) {
    for (TensorDesc& desc : descs_)
      if (desc.dims)
        for (Dim& dim : *desc.dims) dim = symbols.FreshSymbol();
  }
  void ForgetRanks() {
    for (TensorDesc& desc : descs_) desc.dims.reset();
  }
  template <class Change>
  void ChangeDims(Change change) {
    for (TensorDesc& desc : descs_)
      if (desc.dims)
        for (Dim& dim : *desc.dims) dim = change(dim);
  }
  std::vector<const TensorDesc*> descs() const {
    std::vector<const TensorDesc*> descs;
    for (size_t i = 0; i < descs_.size(); ++i) descs.push_back(present_[i] ? &descs_[i] : nullptr);
    return descs;
  }

 private:
  std::vector<TensorDesc> descs_;
  std::vector<bool> present_;
};

std::set<SymbolId> SymbolsIn(const SymbolTable& symbols, const InputFacts& inputs) {
  std::set<SymbolId> ids;
  const auto add = [&](const auto& dims) {
    for (const Dim dim : dims)
      for (const SymbolId id : symbols.SymbolsOf(dim)) ids.insert(id);
  };
  for (size_t i = 0; i < inputs.descs.size(); ++i) {
    if (inputs.descs[i] == nullptr) continue;
    if (inputs.descs[i]->dims) add(*inputs.descs[i]->dims);
    if (const auto known = inputs.known(static_cast<int>(i))) add(*known);
  }
  return ids;
}

}  // namespace

std::optional<NodeFacts> FactsOfFailingNode(Program& program, const Function& function, const Node& node,
                                            const ValueFacts& facts, const Error& why) {
  const bool shapes_differ = why.code == ErrorCode::kShapeMismatch || why.code == ErrorCode::kOutOfRange;
  if (!shapes_differ && why.code != ErrorCode::kInvalidArgument) return std::nullopt;
  const InputFacts known = InputFactsOf(program, function, node, facts);
  struct Trial {
    bool ranks, contents;
  };
  for (const Trial trial : {Trial{true, true}, Trial{true, false}, Trial{false, true}, Trial{false, false}}) {
    // An attribute that is wrong for these ranks is wrong.
    if (!trial.ranks && !shapes_differ) break;
    SymbolTable symbols = program.symbols;
    Loosened loose(known);
    trial.ranks ? loose.ForgetSizes(symbols) : loose.ForgetRanks();
    InputFacts inputs = known;
    inputs.descs = loose.descs();
    if (!trial.contents) {
      inputs.known = [](int) { return std::nullopt; };
      inputs.known_floats = [](int) { return std::nullopt; };
    }
    Result<NodeFacts> said = InferNode(program, symbols, node, std::move(inputs));
    if (!said) continue;
    for (TensorDesc& desc : said->outputs)
      if (desc.dims)
        for (Dim& dim : *desc.dims) dim = program.symbols.FreshSymbol();
    said->known.assign(said->outputs.size(), std::nullopt);
    return std::move(*said);
  }
  return std::nullopt;
}

std::vector<SymbolId> SymbolsAtFault(const Program& program, const Function& function, const Node& node,
                                     const ValueFacts& facts, const Error& why) {
  const InputFacts known = InputFactsOf(program, function, node, facts);
  const SymbolTable& symbols = program.symbols;
  std::vector<SymbolId> at_fault;
  for (const SymbolId id : SymbolsIn(symbols, known)) {
    SymbolTable others;  // the same symbols, this one without limits
    std::vector<Dim> mapping;
    for (size_t i = 0; i < symbols.symbol_count(); ++i) {
      const Symbol& symbol = symbols.symbol(static_cast<SymbolId>(i));
      const bool free = static_cast<SymbolId>(i) == id;
      const auto added = others.AddSymbol(symbol.name, free ? Interval{} : symbol.range, free ? 1 : symbol.divisor);
      if (!added) return at_fault;
      mapping.push_back(*added);
    }
    const auto translate = [&](Dim dim) { return others.Translate(dim, symbols, mapping); };
    Loosened loose(known);
    loose.ChangeDims(translate);
    InputFacts inputs = known;
    inputs.descs = loose.descs();
    inputs.known = [&](int input) {
      std::optional<KnownValues> values = known.known(input);
      if (values)
        for (Dim& dim : *values) dim = translate(dim);
      return values;
    };
    const Result<NodeFacts> said = InferNode(program, others, node, std::move(inputs));
    if (said || said.error().message != why.message) at_fault.push_back(id);
  }
  return at_fault;
}

}  // namespace kiln
