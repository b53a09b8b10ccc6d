// Values: evaluation, checks at entry, and moving expressions between tables.
#include "common/base/checked_math.h"
#include "common/base/limits.h"
#include "common/shape/symbol_table_impl.h"

namespace kiln {

bool Holds(ConstraintKind kind, int64_t left, int64_t right) {
  switch (kind) {
    case ConstraintKind::kEqual:
      return left == right;
    case ConstraintKind::kNotEqual:
      return left != right;
    case ConstraintKind::kLessEqual:
      return left <= right;
    case ConstraintKind::kDivides:
      return left > 0 && right % left == 0;
    case ConstraintKind::kBroadcasts:
      return left == right || left == 1 || right == 1;
  }
  return false;
}

std::optional<ConstraintKind> ConstraintKindFromNumber(int number) {
  switch (number) {
#define KILN_CONSTRAINT(value, name, text, doc) \
  case value:                                   \
    return ConstraintKind::k##name;
#include "common/shape/constraints.def"
#undef KILN_CONSTRAINT
  }
  return std::nullopt;
}

namespace {

std::unexpected<Error> Overflow() {
  return Fail(ErrorCode::kLimitExceeded, "its value does not fit 64 bits; a size is far too large");
}

}  // namespace

Result<int64_t> SymbolTable::Impl::EvaluateAtom(AtomId id, std::span<const int64_t> values) const {
  const Atom& atom = atoms[static_cast<size_t>(id)];
  if (atom.kind == AtomKind::kSymbol) {
    if (static_cast<size_t>(atom.symbol) >= values.size()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "no value is given for symbol \"" + symbols[static_cast<size_t>(atom.symbol)].name + "\"");
    }
    return values[static_cast<size_t>(atom.symbol)];
  }
  if (atom.kind == AtomKind::kTooLarge) {
    return Fail(ErrorCode::kLimitExceeded, "it grew past the limit of " + std::to_string(limits::kDimNodesMax) +
                                               " nodes or a depth of " + std::to_string(limits::kDimDepthMax));
  }
  ASSIGN_OR_RETURN(const int64_t left, Evaluate(atom.left, values));
  ASSIGN_OR_RETURN(const int64_t right, Evaluate(atom.right, values));
  switch (atom.kind) {
    case AtomKind::kFloorDiv:
    case AtomKind::kMod:
      if (right <= 0) {
        return Fail(ErrorCode::kInvalidArgument, "a division by " + std::to_string(right) + "; divisors are positive");
      }
      return atom.kind == AtomKind::kMod ? kiln::FloorMod(left, right) : kiln::FloorDiv(left, right);
    case AtomKind::kMin:
      return std::min(left, right);
    case AtomKind::kMax:
      return std::max(left, right);
    case AtomKind::kProduct: {
      const auto product = CheckedMul(left, right);
      if (!product) return Overflow();
      return *product;
    }
    case AtomKind::kSymbol:
    case AtomKind::kTooLarge:
      break;
  }
  __builtin_unreachable();
}

Result<int64_t> SymbolTable::Impl::Evaluate(Dim dim, std::span<const int64_t> values) const {
  if (dim.is_const()) return dim.value();
  if (dim.kind() == Dim::Kind::kSymbol) return EvaluateAtom(symbol_atoms[static_cast<size_t>(dim.symbol())], values);
  // 128 bits hold any sum of kDimNodesMax 64-bit terms, so that only the result can overflow, not the way to it.
  __int128 sum = 0;
  for (const Term& term : exprs[static_cast<size_t>(dim.payload_)].poly) {
    int64_t product = term.coefficient;
    bool is_zero = false, overflows = false;
    for (AtomId atom : term.atoms) {
      ASSIGN_OR_RETURN(const int64_t factor, EvaluateAtom(atom, values));
      is_zero |= factor == 0;
      overflows |= __builtin_mul_overflow(product, factor, &product);
    }
    if (is_zero) continue;
    if (overflows) return Overflow();
    sum += product;
  }
  if (sum > INT64_MAX || sum < INT64_MIN) return Overflow();
  return static_cast<int64_t>(sum);
}

bool SymbolTable::Impl::AlwaysEvaluates(Dim dim) const {
  if (dim.kind() != Dim::Kind::kExpr) return true;
  for (const Term& term : exprs[static_cast<size_t>(dim.payload_)].poly) {
    for (AtomId id : term.atoms) {
      const Atom& atom = atoms[static_cast<size_t>(id)];
      switch (atom.kind) {
        case AtomKind::kSymbol:
          continue;
        case AtomKind::kTooLarge:
          return false;
        case AtomKind::kFloorDiv:
        case AtomKind::kMod: {
          DimFacts scratch;
          if (FactsOf(atom.right, scratch).bounds.min < 1) return false;
          break;
        }
        case AtomKind::kMin:
        case AtomKind::kMax:
        case AtomKind::kProduct:
          break;
      }
      if (!AlwaysEvaluates(atom.left) || !AlwaysEvaluates(atom.right)) return false;
    }
  }
  return true;
}

bool SymbolTable::AlwaysEvaluates(Dim dim) const {
  return impl_->AlwaysEvaluates(dim);
}

Dim SymbolTable::Translate(Dim dim, const SymbolTable& from, std::span<const Dim> mapping) {
  if (dim.is_const()) return dim;
  if (dim.kind() == Dim::Kind::kSymbol) return mapping[static_cast<size_t>(dim.symbol())];
  Dim sum = Dim::Const(0);
  for (const Term& term : from.impl_->exprs[static_cast<size_t>(dim.payload_)].poly) {
    Dim product = Dim::Const(term.coefficient);
    for (AtomId id : term.atoms) {
      const Atom& atom = from.impl_->atoms[static_cast<size_t>(id)];
      Dim factor;
      if (atom.kind == AtomKind::kSymbol) {
        factor = mapping[static_cast<size_t>(atom.symbol)];
      } else if (atom.kind == AtomKind::kTooLarge) {
        factor = impl_->TooLarge();
      } else {
        const Dim left = Translate(atom.left, from, mapping);
        const Dim right = Translate(atom.right, from, mapping);
        switch (atom.kind) {
          case AtomKind::kFloorDiv:
            factor = FloorDiv(left, right);
            break;
          case AtomKind::kMod:
            factor = Mod(left, right);
            break;
          case AtomKind::kMin:
            factor = Min(left, right);
            break;
          case AtomKind::kMax:
            factor = Max(left, right);
            break;
          case AtomKind::kProduct:
            factor = Mul(left, right);
            break;
          case AtomKind::kSymbol:
          case AtomKind::kTooLarge:
            break;
        }
      }
      product = Mul(product, factor);
    }
    sum = Add(sum, product);
  }
  return sum;
}

namespace {

std::string Quoted(const std::string& name) {
  return "\"" + name + "\"";
}

}  // namespace

Status SymbolTable::Check(std::span<const int64_t> symbol_values) const {
  const size_t count = symbol_count();
  if (symbol_values.size() < count) {
    return Fail(ErrorCode::kInvalidArgument, "values are given for " + std::to_string(symbol_values.size()) + " of " +
                                                 std::to_string(count) + " symbols");
  }
  for (size_t i = 0; i < count; ++i) {
    const Symbol& symbol = impl_->symbols[i];
    const int64_t value = symbol_values[i];
    if (value < symbol.range.min || value > symbol.range.max) {
      const std::string high = symbol.range.max == Interval::kNoBound ? "inf" : std::to_string(symbol.range.max);
      return Fail(ErrorCode::kShapeMismatch, "symbol " + Quoted(symbol.name) + " is " + std::to_string(value) +
                                                 ", outside its range [" + std::to_string(symbol.range.min) + ", " +
                                                 high + "]");
    }
    if (value % symbol.divisor != 0) {
      return Fail(ErrorCode::kShapeMismatch, "symbol " + Quoted(symbol.name) + " is " + std::to_string(value) +
                                                 ", not a multiple of " + std::to_string(symbol.divisor));
    }
  }
  for (const Constraint& constraint : impl_->constraints) {
    ASSIGN_OR_RETURN(const int64_t left, Evaluate(constraint.left, symbol_values));
    ASSIGN_OR_RETURN(const int64_t right, Evaluate(constraint.right, symbol_values));
    if (!Holds(constraint.kind, left, right)) {
      return Fail(ErrorCode::kShapeMismatch, "constraint " + ToString(constraint) + " does not hold: left is " +
                                                 std::to_string(left) + ", right is " + std::to_string(right));
    }
  }
  return {};
}

}  // namespace kiln
