// Constraints that no values satisfy, found before any value is there.
#include <algorithm>
#include <numeric>

#include "common/base/checked_math.h"
#include "common/base/limits.h"
#include "common/shape/symbol_table_impl.h"

namespace kiln {
namespace {

std::string RangeText(Interval range) {
  const std::string low = range.min == INT64_MIN ? "-inf" : std::to_string(range.min);
  return "[" + low + ", " + (range.max == Interval::kNoBound ? "inf" : std::to_string(range.max)) + "]";
}

int64_t CeilDivide(int64_t a, int64_t b) {
  return -kiln::FloorDiv(-a, b);
}

// The range without the ends that are no multiples of the divisor.
Interval MultiplesIn(Interval range, int64_t divisor) {
  if (range.min > INT64_MIN / 2) range.min = CheckedMul(CeilDivide(range.min, divisor), divisor).value_or(range.min);
  if (range.max != Interval::kNoBound)
    range.max = CheckedMul(kiln::FloorDiv(range.max, divisor), divisor).value_or(range.max);
  return range;
}

}  // namespace

// What is known of the symbols, narrowed by one constraint after another.
class SymbolTable::Narrowing {
 public:
  explicit Narrowing(const SymbolTable& table) : table_(table), symbols_(table.impl_->symbols) {}

  Status Run() {
    for (const Symbol& symbol : symbols_) RETURN_IF_ERROR(CheckMultiple(symbol));
    if (table_.constraints().empty() || Nodes() > limits::kConstraintNodesMax) return {};
    // Each round lets what one constraint said of a symbol reach the others.
    for (int round = 0; round < limits::kConstraintRoundsMax; ++round) {
      changed_ = false;
      RETURN_IF_ERROR(Round());
      if (!changed_) break;
    }
    int64_t evaluated = 0;
    for (size_t i = 0; i < table_.constraints().size(); ++i) {
      at_ = i;
      RETURN_IF_ERROR(TryAll(table_.constraints()[i], evaluated));
    }
    return {};
  }
  // The constraint at which Run failed; none: at a symbol's range.
  std::optional<size_t> at() const { return at_; }

 private:
  static Status CheckMultiple(const Symbol& symbol) {
    const Interval range = MultiplesIn(symbol.range, symbol.divisor);
    if (range.min <= range.max) return {};
    return Fail(ErrorCode::kInvalidArgument, "symbol \"" + symbol.name + "\": its range " + RangeText(symbol.range) +
                                                 " holds no multiple of " + std::to_string(symbol.divisor));
  }

  int64_t NodesOf(const Constraint& constraint) const {
    DimFacts scratch;
    const int64_t left = table_.impl_->FactsOf(constraint.left, scratch).nodes;
    return left + table_.impl_->FactsOf(constraint.right, scratch).nodes;
  }
  int64_t Nodes() const {
    int64_t nodes = 0;
    for (const Constraint& constraint : table_.constraints()) nodes += NodesOf(constraint);
    return nodes;
  }

  // The constraints over a table of the narrowed symbols, in the order of the given ones.
  std::vector<Constraint> Rewrite(SymbolTable& narrowed) {
    std::vector<Dim> mapping;
    ids_.clear();
    for (size_t i = 0; i < symbols_.size(); ++i) {
      const Symbol& symbol = symbols_[i];
      if (symbol.range.min == symbol.range.max) {
        mapping.push_back(Dim::Const(symbol.range.min));
      } else {
        mapping.push_back(narrowed.FreshSymbol(symbol.range, symbol.divisor));
        ids_.push_back(i);
      }
    }
    std::vector<Constraint> constraints;
    for (const Constraint& constraint : table_.constraints()) {
      constraints.push_back({constraint.kind, narrowed.Translate(constraint.left, table_, mapping),
                             narrowed.Translate(constraint.right, table_, mapping)});
      // Only what relates two expressions: bounds are in the symbols, where a contradiction has its name.
      if (!constraints.back().left.is_const() && !constraints.back().right.is_const())
        narrowed.AddConstraint(constraints.back());
    }
    return constraints;
  }

  Status Round() {
    SymbolTable narrowed;
    const std::vector<Constraint> constraints = Rewrite(narrowed);
    for (size_t i = 0; i < constraints.size(); ++i) {
      const Constraint& constraint = constraints[i];
      at_ = i;
      if (Contradicts(narrowed, constraint)) {
        return Fail(ErrorCode::kInvalidArgument, "constraint " + table_.ToString(table_.constraints()[i]) +
                                                     " cannot hold: left lies in " +
                                                     RangeText(narrowed.Bounds(constraint.left)) + ", right in " +
                                                     RangeText(narrowed.Bounds(constraint.right)));
      }
    }
    for (size_t i = 0; i < constraints.size(); ++i) {
      at_ = i;
      RETURN_IF_ERROR(Narrow(narrowed, constraints[i], table_.constraints()[i]));
    }
    return {};
  }

  static bool IsNeverOne(const SymbolTable& table, Dim dim) { return table.ProvenDifferent(dim, Dim::Const(1)); }

  static bool Contradicts(SymbolTable& table, const Constraint& constraint) {
    const Dim left = constraint.left, right = constraint.right;
    switch (constraint.kind) {
      case ConstraintKind::kEqual:
        return table.ProvenDifferent(left, right);
      case ConstraintKind::kNotEqual:
        return table.ProvenEqual(left, right);
      case ConstraintKind::kLessEqual:
        return table.Bounds(left).min > table.Bounds(right).max || table.Bounds(table.Sub(left, right)).min > 0;
      case ConstraintKind::kDivides: {
        if (table.Bounds(left).max < 1) return true;
        if (!left.is_const()) return false;
        const Interval multiples = MultiplesIn(table.Bounds(right), left.value());
        return multiples.min > multiples.max || table.Bounds(table.Mod(right, left)).min > 0;
      }
      case ConstraintKind::kBroadcasts:
        return IsNeverOne(table, left) && IsNeverOne(table, right) && table.ProvenDifferent(left, right);
    }
    return false;
  }

  // What the constraint says of every symbol that it is linear in.
  Status Narrow(SymbolTable& narrowed, const Constraint& constraint, const Constraint& given) {
    bool equal = constraint.kind == ConstraintKind::kEqual;
    if (constraint.kind == ConstraintKind::kBroadcasts) {
      equal = IsNeverOne(narrowed, constraint.left) && IsNeverOne(narrowed, constraint.right);
      if (!equal) return {};
    }
    if (constraint.kind == ConstraintKind::kNotEqual) return {};
    if (constraint.kind == ConstraintKind::kDivides) {
      if (!constraint.left.is_const() || constraint.right.kind() != Dim::Kind::kSymbol) return {};
      Symbol& symbol = symbols_[ids_[static_cast<size_t>(constraint.right.symbol())]];
      const auto divisor =
          CheckedMul(symbol.divisor, constraint.left.value() / std::gcd(symbol.divisor, constraint.left.value()));
      if (!divisor || *divisor == symbol.divisor) return {};
      return Set(symbol, symbol.range, *divisor, given);
    }
    Impl& impl = *narrowed.impl_;
    const auto difference = impl.AddPolys(impl.ToPoly(constraint.left), impl.ToPoly(constraint.right), -1);
    if (!difference) return {};
    for (size_t i = 0; i < difference->size(); ++i) {
      const Term term = (*difference)[i];
      if (term.atoms.size() != 1 || term.coefficient == INT64_MIN) continue;
      const Atom& atom = impl.atoms[static_cast<size_t>(term.atoms[0])];
      if (atom.kind != AtomKind::kSymbol) continue;
      const SymbolId id = atom.symbol;
      Poly rest = *difference;
      rest.erase(rest.begin() + static_cast<ptrdiff_t>(i));
      const Interval bounds = impl.BoundsOf(rest);
      const std::vector<SymbolId> others = narrowed.SymbolsOf(impl.Intern(std::move(rest)));
      if (std::ranges::find(others, id) != others.end()) continue;
      Symbol& symbol = symbols_[ids_[static_cast<size_t>(id)]];
      RETURN_IF_ERROR(Set(symbol, Solve(symbol.range, term.coefficient, bounds, equal), symbol.divisor, given));
    }
    return {};
  }

  // The part of `range` in which k x + rest <= 0, or == 0, can hold.
  static Interval Solve(Interval range, int64_t k, Interval rest, bool equal) {
    const int64_t size = std::abs(k);
    const auto at_most = [&](int64_t value) { range.max = std::min(range.max, value); };
    const auto at_least = [&](int64_t value) { range.min = std::max(range.min, value); };
    if (rest.min > INT64_MIN + 1 && rest.min != INT64_MAX)
      k > 0 ? at_most(kiln::FloorDiv(-rest.min, size)) : at_least(CeilDivide(rest.min, size));
    if (equal && rest.max != Interval::kNoBound && rest.max > INT64_MIN + 1)
      k > 0 ? at_least(CeilDivide(-rest.max, size)) : at_most(kiln::FloorDiv(rest.max, size));
    return range;
  }

  Status Set(Symbol& symbol, Interval range, int64_t divisor, const Constraint& given) {
    range = MultiplesIn(range, divisor);
    if (range.min > range.max) {
      return Fail(ErrorCode::kInvalidArgument,
                  "constraint " + table_.ToString(given) + " leaves no value for symbol \"" + symbol.name +
                      "\", which lies in " + RangeText(symbol.range) +
                      (symbol.divisor > 1 ? " in steps of " + std::to_string(symbol.divisor) : "") +
                      " by what else is declared");
    }
    changed_ |= !(range == symbol.range) || divisor != symbol.divisor;
    symbol.range = range;
    symbol.divisor = divisor;
    return {};
  }

  // Every combination of values of the constraint's symbols, where there are few.
  Status TryAll(const Constraint& constraint, int64_t& evaluated) {
    std::vector<SymbolId> ids = table_.SymbolsOf(constraint.left);
    for (const SymbolId id : table_.SymbolsOf(constraint.right)) ids.push_back(id);
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    int64_t combinations = 1;
    std::vector<int64_t> values(symbols_.size(), 0);
    for (const SymbolId id : ids) {
      const Symbol& symbol = symbols_[static_cast<size_t>(id)];
      const Interval range = MultiplesIn(symbol.range, symbol.divisor);
      if (range.max == Interval::kNoBound || range.min < -kDivisorOfZero || range.max > kDivisorOfZero) return {};
      combinations *= std::min((range.max - range.min) / symbol.divisor + 1, limits::kConstraintTriesMax + 1);
      if (combinations > limits::kConstraintTriesMax) return {};
      values[static_cast<size_t>(id)] = range.min;
    }
    evaluated += combinations * NodesOf(constraint);
    if (evaluated > limits::kConstraintNodesTriedMax) return {};
    const std::vector<int64_t> first = values;
    for (int64_t at = 0; at < combinations; ++at) {
      const auto left = table_.Evaluate(constraint.left, values), right = table_.Evaluate(constraint.right, values);
      if (!left || !right || Holds(constraint.kind, *left, *right)) return {};
      for (const SymbolId id : ids) {
        const Symbol& symbol = symbols_[static_cast<size_t>(id)];
        int64_t& value = values[static_cast<size_t>(id)];
        value += symbol.divisor;
        if (value <= symbol.range.max) break;
        value = first[static_cast<size_t>(id)];
      }
    }
    std::string where;
    for (const SymbolId id : ids) {
      const Symbol& symbol = symbols_[static_cast<size_t>(id)];
      where += (where.empty() ? " for " : ", ") + table_.SymbolText(id) + " in " + RangeText(symbol.range);
      if (symbol.divisor > 1) where += " in steps of " + std::to_string(symbol.divisor);
    }
    return Fail(ErrorCode::kInvalidArgument, "constraint " + table_.ToString(constraint) + " cannot hold" + where);
  }

  const SymbolTable& table_;
  std::vector<Symbol> symbols_;  // by id of the table
  std::vector<size_t> ids_;      // of the table's symbols, by id of the narrowed table
  std::optional<size_t> at_;
  bool changed_ = false;
};

std::optional<Contradiction> SymbolTable::FindContradiction() const {
  Narrowing narrowing(*this);
  const Status status = narrowing.Run();
  if (status) return std::nullopt;
  return Contradiction{narrowing.at(), status.error().message};
}

Status SymbolTable::CheckConsistent() const {
  if (const auto found = FindContradiction()) return Fail(ErrorCode::kInvalidArgument, found->text);
  return {};
}

}  // namespace kiln
