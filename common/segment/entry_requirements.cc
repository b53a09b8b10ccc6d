#include "common/segment/entry_requirements.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/limits.h"
#include "common/bytecode/entry_inputs.h"
#include "common/segment/shape_walk.h"

namespace kiln {
namespace {

// More of them say nothing more.
constexpr int kOthersNamed = 3;

std::string NodeText(const Node& node) {
  return std::string(OpInfo(node.op).name) + (node.name.empty() ? "" : " \"" + node.name.substr(0, 200) + "\"");
}

std::vector<SymbolId> SymbolsOf(const SymbolTable& symbols, const Constraint& constraint) {
  std::vector<SymbolId> ids = symbols.SymbolsOf(constraint.left);
  for (const SymbolId id : symbols.SymbolsOf(constraint.right))
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  return ids;
}

std::string RangeText(const Symbol& symbol) {
  std::string text = std::to_string(symbol.range.min) + "..";
  if (symbol.range.max != Interval::kNoBound) text += std::to_string(symbol.range.max);
  return text + (symbol.divisor > 1 ? " in steps of " + std::to_string(symbol.divisor) : "");
}

class Finder {
 public:
  Finder(const Program& program, const SymbolDefinitions& definitions, const RangeSource& source)
      : program_(program),
        function_(program.entry()),
        source_(source),
        walk_(program, definitions, 0),
        shown_(program.symbols.symbol_count(), false) {
    walk_.AskWhatIsRequired();
    found_.symbols = program.symbols;
    declared_ = found_.symbols.constraints().size();
    for (size_t i = 0; i < shown_.size(); ++i) same_.push_back(program.symbols.SymbolDim(static_cast<SymbolId>(i)));
    for (const ValueId input : function_.regions[0].inputs) {
      const TensorDesc& desc = function_.values[static_cast<size_t>(input)].desc;
      for (size_t d = 0; desc.has_rank() && d < desc.dims->size(); ++d)
        if ((*desc.dims)[d].kind() == Dim::Kind::kSymbol) shown_[static_cast<size_t>((*desc.dims)[d].symbol())] = true;
    }
  }

  Result<EntryRequirements> Run() {
    const std::vector<Node>& nodes = function_.regions[0].nodes;
    const std::vector<bool> live = LiveNodes();
    for (size_t n = 0; n < nodes.size(); ++n) {
      walk_.Step(nodes[n]);
      if (!live[n]) continue;
      if (walk_.last_failure()) return FailIn("node " + NodeText(nodes[n]), *walk_.last_failure());
      for (const Constraint& constraint : walk_.last_required()) RETURN_IF_ERROR(Add(constraint, nodes[n]));
    }
    if (found_.rows.empty()) return std::move(found_);
    const std::optional<Contradiction> contradiction = found_.symbols.FindContradiction();
    if (contradiction) return Refuse(*contradiction);
    return std::move(found_);
  }

 private:
  // Backwards from the outputs. Whatever a region mentions is used by its node.
  std::vector<bool> LiveNodes() const {
    std::vector<bool> used(function_.values.size(), false);
    const auto use = [&](ValueId value) {
      if (value != kNoValue) used[static_cast<size_t>(value)] = true;
    };
    const auto use_region = [&](auto& self, RegionId id) -> void {
      const Region& region = function_.regions[static_cast<size_t>(id)];
      for (const Node& node : region.nodes) {
        std::ranges::for_each(node.inputs, use);
        for (const RegionId inner : node.regions) self(self, inner);
      }
      std::ranges::for_each(region.outputs, use);
    };
    const Region& body = function_.regions[0];
    std::ranges::for_each(body.outputs, use);
    std::vector<bool> live(body.nodes.size(), false);
    for (size_t n = body.nodes.size(); n-- > 0;) {
      const Node& node = body.nodes[n];
      live[n] = std::ranges::any_of(
          node.outputs, [&](ValueId value) { return value != kNoValue && used[static_cast<size_t>(value)]; });
      if (!live[n]) continue;
      std::ranges::for_each(node.inputs, use);
      for (const RegionId region : node.regions) use_region(use_region, region);
    }
    return live;
  }

  Status Add(const Constraint& asked, const Node& node) {
    const SymbolTable& from = walk_.symbols();
    if (asked.left.is_const() && asked.right.is_const())
      return FailIn("node " + NodeText(node),
                    Error{ErrorCode::kShapeMismatch, "constraint " + from.ToString(asked) + " cannot hold", {}});
    if (found_.rows.size() >= limits::kEntryRequirementsMax || !IsToldAtEntry(asked)) return {};
    const Constraint constraint{asked.kind, found_.symbols.Translate(asked.left, from, same_),
                                found_.symbols.Translate(asked.right, from, same_)};
    if (IsImplied(constraint)) return {};
    found_.symbols.AddConstraint(constraint);
    found_.rows.push_back({constraint, NodeText(node)});
    return {};
  }

  // Whether inputs show every symbol, and every call can work the constraint out.
  bool IsToldAtEntry(const Constraint& asked) const {
    const SymbolTable& from = walk_.symbols();
    for (const Dim side : {asked.left, asked.right}) {
      if (!from.AlwaysEvaluates(side) || from.Encode(side).size() > limits::kEntryRequirementWordsMax) return false;
      for (const SymbolId id : from.SymbolsOf(side))
        if (static_cast<size_t>(id) >= shown_.size() || !shown_[static_cast<size_t>(id)]) return false;
    }
    return true;
  }

  bool IsImplied(const Constraint& constraint) {
    SymbolTable& known = found_.symbols;
    const auto& all = known.constraints();
    if (std::ranges::find(all, constraint) != all.end()) return true;
    const Dim left = constraint.left, right = constraint.right;
    switch (constraint.kind) {
      case ConstraintKind::kEqual:
        return known.ProvenEqual(left, right);
      case ConstraintKind::kNotEqual:
        return known.ProvenDifferent(left, right);
      case ConstraintKind::kLessEqual:
        return known.Bounds(left).max <= known.Bounds(right).min || known.Bounds(known.Sub(right, left)).min >= 0;
      case ConstraintKind::kDivides:
        return left.is_const() && left.value() > 0 && known.Divisor(right) % left.value() == 0;
      case ConstraintKind::kBroadcasts:
        return known.ProvenEqual(left, right) || known.ProvenEqual(left, Dim::Const(1)) ||
               known.ProvenEqual(right, Dim::Const(1));
    }
    return false;
  }

  std::unexpected<Error> Refuse(const Contradiction& contradiction) const {
    std::string text = contradiction.text;
    std::vector<SymbolId> ids;
    if (contradiction.constraint)
      ids = SymbolsOf(found_.symbols, found_.symbols.constraints()[*contradiction.constraint]);
    for (const SymbolId id : ids) {
      const Symbol& symbol = found_.symbols.symbol(id);
      text += fmt::format("; {} is {}, in {}", found_.symbols.SymbolText(id), PlaceOf(program_, id), RangeText(symbol));
      if (const std::string by = source_ ? source_(symbol.name) : ""; !by.empty()) text += " by " + by;
    }
    const bool asked = contradiction.constraint && *contradiction.constraint >= declared_;
    const size_t row = asked ? *contradiction.constraint - declared_ : found_.rows.size();
    text += OthersText(ids, row);
    Error error{ErrorCode::kShapeMismatch, text, {}};
    return asked ? FailIn("node " + found_.rows[row].node, error) : std::unexpected(error);
  }

  // What other nodes ask of the same symbols.
  std::string OthersText(const std::vector<SymbolId>& ids, size_t row) const {
    std::string text;
    int named = 0;
    for (size_t i = 0; i < found_.rows.size() && named < kOthersNamed; ++i) {
      const Constraint& constraint = found_.rows[i].constraint;
      const std::vector<SymbolId> its = SymbolsOf(found_.symbols, constraint);
      if (i == row || std::ranges::find_first_of(its, ids) == its.end()) continue;
      text += fmt::format("; node {} asks for {}", found_.rows[i].node, found_.symbols.ToString(constraint));
      ++named;
    }
    return text;
  }

  const Program& program_;
  const Function& function_;
  const RangeSource& source_;
  ShapeWalk walk_;
  std::vector<bool> shown_;  // per symbol of the program
  std::vector<Dim> same_;    // per symbol of the program: itself
  size_t declared_ = 0;      // constraints of the program itself
  EntryRequirements found_;
};

}  // namespace

Result<EntryRequirements> FindEntryRequirements(const Program& program, const SymbolDefinitions& definitions,
                                                const RangeSource& source) {
  return Finder(program, definitions, source).Run();
}

Status CheckEntryRequirements(const Program& program, const EntryRequirements& requirements,
                              std::span<const int64_t> frame) {
  const SymbolTable& symbols = requirements.symbols;
  for (const EntryRequirement& row : requirements.rows) {
    const auto left = symbols.Evaluate(row.constraint.left, frame),
               right = symbols.Evaluate(row.constraint.right, frame);
    // Beyond 64 bits: the node says which size is too large.
    if (!left || !right || Holds(row.constraint.kind, *left, *right)) continue;
    return Fail(ErrorCode::kShapeMismatch,
                fmt::format("constraint {} does not hold: {}; node {} asks for it", symbols.ToString(row.constraint),
                            ValuesText(program, symbols, row.constraint, frame), row.node));
  }
  return {};
}

std::string ValuesText(const Program& program, const SymbolTable& symbols, const Constraint& constraint,
                       std::span<const int64_t> frame) {
  std::string text;
  for (const SymbolId id : SymbolsOf(symbols, constraint)) {
    const std::string place = PlaceOf(program, id);
    text += fmt::format("{}{} is {}{}", text.empty() ? "" : "; ", symbols.SymbolText(id),
                        frame[static_cast<size_t>(id)], place.empty() ? "" : ", " + place);
  }
  return text;
}

}  // namespace kiln
