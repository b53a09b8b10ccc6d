#include "common/shape/symbol_table.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"
#include "common/base/checked_math.h"
#include "common/base/limits.h"
#include "common/shape/symbol_table_impl.h"

namespace kiln {

SymbolTable::SymbolTable() : impl_(std::make_unique<Impl>()) {}
SymbolTable::~SymbolTable() = default;
SymbolTable::SymbolTable(const SymbolTable& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
SymbolTable& SymbolTable::operator=(const SymbolTable& other) {
  if (this != &other) impl_ = std::make_unique<Impl>(*other.impl_);
  return *this;
}
SymbolTable::SymbolTable(SymbolTable&& other) noexcept = default;
SymbolTable& SymbolTable::operator=(SymbolTable&& other) noexcept = default;

Result<Dim> SymbolTable::AddSymbol(std::string_view name, Interval range, int64_t divisor) {
  if (range.min > range.max) {
    return Fail(ErrorCode::kInvalidArgument, "symbol \"" + std::string(name) + "\": its range [" +
                                                 std::to_string(range.min) + ", " + std::to_string(range.max) +
                                                 "] is empty");
  }
  if (divisor < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                "symbol \"" + std::string(name) + "\": divisor " + std::to_string(divisor) + " is not positive");
  }
  if (name.size() > limits::kNameBytesMax) {
    return Fail(ErrorCode::kLimitExceeded, "a symbol name of " + std::to_string(name.size()) +
                                               " bytes passes the limit of " + std::to_string(limits::kNameBytesMax));
  }
  if (name.empty()) return FreshSymbol(range, divisor);
  if (const auto found = impl_->by_name.find(name); found != impl_->by_name.end()) {
    const Symbol& known = impl_->symbols[static_cast<size_t>(found->second)];
    if (known.range == range && known.divisor == divisor) return SymbolDim(found->second);
    return Fail(ErrorCode::kAlreadyExists,
                "symbol \"" + std::string(name) + "\" is already declared with another range or divisor");
  }
  const SymbolId id = static_cast<SymbolId>(impl_->symbols.size());
  impl_->symbols.push_back({std::string(name), range, divisor});
  impl_->by_name.emplace(name, id);
  impl_->symbol_atoms.push_back(
      impl_->InternAtom({AtomKind::kSymbol, id, Dim(), Dim(), DimFacts{range, divisor, 1, 0}}));
  return SymbolDim(id);
}

Dim SymbolTable::FreshSymbol(Interval range, int64_t divisor) {
  KILN_CHECK(range.min <= range.max && divisor >= 1);
  std::string name;
  size_t number = impl_->symbols.size();
  do {
    name = "s" + std::to_string(number++);
  } while (impl_->by_name.contains(name));
  return *AddSymbol(name, range, divisor);
}

std::optional<Dim> SymbolTable::FindSymbol(std::string_view name) const {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? std::nullopt : std::optional(SymbolDim(found->second));
}

size_t SymbolTable::symbol_count() const {
  return impl_->symbols.size();
}

const Symbol& SymbolTable::symbol(SymbolId id) const {
  return impl_->symbols[static_cast<size_t>(id)];
}

Dim SymbolTable::SymbolDim(SymbolId id) const {
  KILN_CHECK(id >= 0 && static_cast<size_t>(id) < impl_->symbols.size());
  return Dim(Dim::Kind::kSymbol, id);
}

bool SymbolTable::Owns(Dim dim) const {
  switch (dim.kind()) {
    case Dim::Kind::kConst:
      return true;
    case Dim::Kind::kSymbol:
      return dim.payload_ >= 0 && static_cast<size_t>(dim.payload_) < impl_->symbols.size();
    case Dim::Kind::kExpr:
      return dim.payload_ >= 0 && static_cast<size_t>(dim.payload_) < impl_->exprs.size();
  }
  return false;
}

namespace {

// A constant at the int64 limits stands for one that overflowed: it absorbs what is added to it.
bool IsSaturated(Dim dim) {
  return dim.is_const() && (dim.value() == INT64_MAX || dim.value() == INT64_MIN);
}
int64_t Saturated(bool negative) {
  return negative ? INT64_MIN : INT64_MAX;
}

}  // namespace

Dim SymbolTable::AddSlow(Dim a, Dim b, int64_t b_factor) {
  if (IsSaturated(a)) return a;
  if (IsSaturated(b)) return Dim::Const(Saturated((b.value() < 0) == (b_factor > 0)));
  if (a.is_const() && b.is_const()) {
    const auto sum = b_factor > 0 ? CheckedAdd(a.value(), b.value()) : CheckedSub(a.value(), b.value());
    return Dim::Const(sum ? *sum : Saturated(a.value() < 0));
  }
  if (impl_->IsTooLarge(a) || impl_->IsTooLarge(b)) return impl_->TooLarge();
  return impl_->InternOr(impl_->AddPolys(impl_->ToPoly(a), impl_->ToPoly(b), b_factor));
}

Dim SymbolTable::MulSlow(Dim a, Dim b) {
  if (a == Dim::Const(0) || b == Dim::Const(0)) return Dim::Const(0);
  if (a.is_const() && b.is_const()) {
    const auto product = CheckedMul(a.value(), b.value());
    return Dim::Const(product ? *product : Saturated((a.value() < 0) != (b.value() < 0)));
  }
  if (impl_->IsTooLarge(a) || impl_->IsTooLarge(b)) return impl_->TooLarge();
  const Poly left = impl_->ToPoly(a), right = impl_->ToPoly(b);
  if (left.size() > 1 && right.size() > 1 && left.size() * right.size() > limits::kDimTermsMax) {
    if (impl_->CompareDims(a, b) > 0) std::swap(a, b);
    return impl_->AtomDim(AtomKind::kProduct, a, b);
  }
  return impl_->InternOr(impl_->MulPolys(left, right));
}

Dim SymbolTable::FloorDivSlow(Dim a, Dim b) {
  if (IsSaturated(a)) return a;
  if (impl_->IsTooLarge(a) || impl_->IsTooLarge(b)) return impl_->TooLarge();
  return impl_->FloorDiv(impl_->ToPoly(a), impl_->ToPoly(b));
}

Dim SymbolTable::CeilDiv(Dim a, Dim b) {
  if (b == Dim::Const(1)) return a;
  // Where b divides a there is nothing to round, and the quotient stays simple.
  if (!a.is_const() && !IsSaturated(b)) {
    if (const auto quotient = impl_->DivideExactly(impl_->ToPoly(a), impl_->ToPoly(b))) return impl_->Intern(*quotient);
  }
  return FloorDiv(Add(a, Sub(b, Dim::Const(1))), b);
}

Dim SymbolTable::ModSlow(Dim a, Dim b) {
  if (IsSaturated(a)) return a;
  if (impl_->IsTooLarge(a) || impl_->IsTooLarge(b)) return impl_->TooLarge();
  return impl_->Mod(impl_->ToPoly(a), impl_->ToPoly(b));
}

Dim SymbolTable::MinMaxSlow(Dim a, Dim b, bool is_min) {
  if (impl_->IsTooLarge(a) || impl_->IsTooLarge(b)) return impl_->TooLarge();
  return impl_->MinMax(is_min ? AtomKind::kMin : AtomKind::kMax, a, b);
}

Dim SymbolTable::ExactDiv(Dim a, Dim b) {
  // FloorDiv already divides polynomials and cancels common factors; exactness adds what divisors of symbols prove.
  return FloorDiv(a, b);
}

bool SymbolTable::IsTooLarge(Dim dim) const {
  return impl_->IsTooLarge(dim);
}

bool SymbolTable::ProvenEqual(Dim a, Dim b) const {
  if (a == b) return !impl_->IsTooLarge(a);
  if (a.is_const() && b.is_const()) return false;
  const auto difference = impl_->AddPolys(impl_->ToPoly(a), impl_->ToPoly(b), -1);
  if (!difference) return false;
  if (impl_->BoundsOf(*difference) == Interval{0, 0}) return true;
  for (const Constraint& constraint : impl_->constraints) {
    if (constraint.kind != ConstraintKind::kEqual) continue;
    for (int64_t sign : {1, -1}) {
      const auto fact = impl_->AddPolys(impl_->ToPoly(constraint.left), impl_->ToPoly(constraint.right), -1);
      if (!fact) continue;
      const auto rest = impl_->AddPolys(*difference, *fact, sign);
      if (rest && rest->empty()) return true;
    }
  }
  return false;
}

bool SymbolTable::ProvenDifferent(Dim a, Dim b) const {
  if (a == b) return false;
  if (a.is_const() && b.is_const()) return true;
  const Interval a_bounds = Bounds(a), b_bounds = Bounds(b);
  if (a_bounds.max < b_bounds.min || b_bounds.max < a_bounds.min) return true;
  const auto difference = impl_->AddPolys(impl_->ToPoly(a), impl_->ToPoly(b), -1);
  if (!difference || difference->empty()) return false;
  const Interval bounds = impl_->BoundsOf(*difference);
  if (bounds.min > 0 || bounds.max < 0) return true;
  // k*x + c with c not a multiple of k is never 0.
  if (difference->back().atoms.empty()) {
    Poly rest = *difference;
    rest.pop_back();
    if (!rest.empty() && difference->back().coefficient % impl_->DivisorOf(rest) != 0) return true;
  }
  for (const Constraint& constraint : impl_->constraints) {
    if (constraint.kind != ConstraintKind::kNotEqual) continue;
    if ((constraint.left == a && constraint.right == b) || (constraint.left == b && constraint.right == a)) return true;
  }
  return false;
}

Interval SymbolTable::Bounds(Dim dim) const {
  DimFacts scratch;
  Interval bounds = impl_->FactsOf(dim, scratch).bounds;
  if (dim.is_const()) return bounds;
  const auto tighten = [&](int64_t low, int64_t high) {
    bounds.min = std::max(bounds.min, low);
    bounds.max = std::min(bounds.max, high);
  };
  for (const Constraint& constraint : impl_->constraints) {
    const bool equal = constraint.kind == ConstraintKind::kEqual;
    if (!equal && constraint.kind != ConstraintKind::kLessEqual) continue;
    if (constraint.left == dim && constraint.right.is_const()) {
      tighten(equal ? constraint.right.value() : INT64_MIN, constraint.right.value());
    } else if (constraint.right == dim && constraint.left.is_const()) {
      tighten(constraint.left.value(), equal ? constraint.left.value() : INT64_MAX);
    }
  }
  return bounds;
}

int64_t SymbolTable::Divisor(Dim dim) const {
  DimFacts scratch;
  int64_t divisor = impl_->FactsOf(dim, scratch).divisor;
  if (dim.is_const()) return divisor;
  for (const Constraint& constraint : impl_->constraints) {
    if (constraint.kind != ConstraintKind::kDivides || constraint.right != dim) continue;
    if (!constraint.left.is_const() || constraint.left.value() < 1) continue;
    const int64_t step = constraint.left.value() / std::gcd(constraint.left.value(), divisor);
    divisor = CheckedMul(divisor, step).value_or(divisor);
  }
  return divisor;
}

std::vector<SymbolId> SymbolTable::SymbolsOf(Dim dim) const {
  std::vector<SymbolId> symbols;
  impl_->CollectSymbols(dim, symbols);
  std::sort(symbols.begin(), symbols.end());
  symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
  return symbols;
}

void SymbolTable::Impl::CollectSymbols(Dim dim, std::vector<SymbolId>& out) const {
  if (dim.is_const()) return;
  if (dim.kind() == Dim::Kind::kSymbol) return out.push_back(dim.symbol());
  for (const Term& term : exprs[static_cast<size_t>(dim.payload_)].poly) {
    for (AtomId id : term.atoms) {
      const Atom& atom = atoms[static_cast<size_t>(id)];
      if (atom.kind == AtomKind::kSymbol) {
        out.push_back(atom.symbol);
      } else {
        CollectSymbols(atom.left, out);
        CollectSymbols(atom.right, out);
      }
    }
  }
}

Result<int64_t> SymbolTable::Evaluate(Dim dim, std::span<const int64_t> symbol_values) const {
  auto value = impl_->Evaluate(dim, symbol_values);
  if (!value) return FailIn("expression " + ToString(dim), value.error());
  return value;
}

void SymbolTable::AddConstraint(Constraint constraint) {
  if (std::find(impl_->constraints.begin(), impl_->constraints.end(), constraint) == impl_->constraints.end()) {
    impl_->constraints.push_back(constraint);
  }
}

const std::vector<Constraint>& SymbolTable::constraints() const {
  return impl_->constraints;
}

}  // namespace kiln
