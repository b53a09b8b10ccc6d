// Division, modulus, minimum and maximum: what can be proven away is, the rest becomes an atom.
#include <algorithm>
#include <numeric>

#include "common/base/checked_math.h"
#include "common/shape/symbol_table_impl.h"

namespace kiln {
namespace {

std::optional<int64_t> ConstOf(const Poly& poly) {
  if (poly.empty()) return 0;
  if (poly.size() == 1 && poly[0].atoms.empty()) return poly[0].coefficient;
  return std::nullopt;
}

// Splits into the terms whose coefficient is a multiple of k (divided by k; the constant gives its quotient) and the
// rest.
struct Split {
  Poly quotient;
  Poly rest;
};
Split SplitByDivisor(const Poly& poly, int64_t k) {
  Split split;
  for (const Term& term : poly) {
    if (term.coefficient % k == 0) {
      split.quotient.push_back({term.coefficient / k, term.atoms});
    } else if (term.atoms.empty()) {
      const int64_t quotient = FloorDiv(term.coefficient, k);
      if (quotient != 0) split.quotient.push_back({quotient, {}});
      split.rest.push_back({FloorMod(term.coefficient, k), {}});
    } else {
      split.rest.push_back(term);
    }
  }
  return split;
}

// The value of floordiv(x, k) if it is the same for every x of the interval.
std::optional<int64_t> OnlyQuotient(Interval x, int64_t k) {
  if (x.min == INT64_MIN || x.max == Interval::kNoBound) return std::nullopt;
  const int64_t quotient = FloorDiv(x.min, k);
  return quotient == FloorDiv(x.max, k) ? std::optional(quotient) : std::nullopt;
}

// Greatest common divisor of k and the coefficients of all terms that are not the constant.
int64_t ContentWith(const Poly& poly, int64_t k) {
  int64_t content = k;
  for (const Term& term : poly) {
    if (!term.atoms.empty()) content = std::gcd(content, term.coefficient == INT64_MIN ? int64_t{1} : term.coefficient);
  }
  return content;
}

}  // namespace

Dim SymbolTable::Impl::FloorDivByConst(const Poly& a, int64_t k) {
  if (k <= 0) return Dim::Const(INT64_MAX);
  auto [quotient, rest] = SplitByDivisor(a, k);
  // Terms that k divides through what is known of their symbols leave the rounding alone: floor((d + r)/k) = d/k +
  // floor(r/k).
  Poly exact, open;
  for (Term& term : rest) (DivisorOf(term) % k == 0 ? exact : open).push_back(std::move(term));
  Dim sum = Intern(std::move(quotient));
  const auto add = [&](Dim part) { sum = InternOr(AddPolys(ToPoly(sum), ToPoly(part), 1)); };
  if (!exact.empty()) {
    const int64_t content = ContentWith(exact, k);
    for (Term& term : exact) term.coefficient /= content;
    add(AtomDim(AtomKind::kFloorDiv, Intern(std::move(exact)), Dim::Const(k / content)));
  }
  if (const auto value = OnlyQuotient(BoundsOf(open), k)) {
    add(Dim::Const(*value));
    return sum;
  }
  const int64_t content = ContentWith(open, k);
  for (Term& term : open) term.coefficient = kiln::FloorDiv(term.coefficient, content);
  std::erase_if(open, [](const Term& term) { return term.coefficient == 0; });
  k /= content;
  if (k == 1) {
    add(Intern(std::move(open)));
    return sum;
  }
  // floordiv(floordiv(x, m) + c, k) = floordiv(x + c*m, m*k)
  const bool has_constant = open.back().atoms.empty();
  if (open.size() == (has_constant ? 2u : 1u) && open[0].coefficient == 1 && open[0].atoms.size() == 1) {
    const Atom inner = atoms[static_cast<size_t>(open[0].atoms[0])];
    if (inner.kind == AtomKind::kFloorDiv && inner.right.is_const()) {
      const auto offset = CheckedMul(has_constant ? open[1].coefficient : 0, inner.right.value());
      const auto divisor = CheckedMul(k, inner.right.value());
      if (offset && divisor) {
        if (auto x = AddPolys(ToPoly(inner.left), {{1, {}}}, *offset)) {
          add(FloorDivByConst(*x, *divisor));
          return sum;
        }
      }
    }
  }
  add(AtomDim(AtomKind::kFloorDiv, Intern(std::move(open)), Dim::Const(k)));
  return sum;
}

Dim SymbolTable::Impl::FloorDiv(const Poly& a, const Poly& b) {
  if (a.empty()) return Dim::Const(0);
  if (const auto k = ConstOf(b)) return FloorDivByConst(a, *k);
  if (auto quotient = DivideExactly(a, b)) return Intern(*std::move(quotient));
  // Cancel what every term of both shares: a coefficient, and atoms that are never negative.
  Term common{0, b.front().atoms};
  const auto keep_shared = [&](const Poly& poly) {
    for (const Term& term : poly) {
      common.coefficient = std::gcd(common.coefficient, term.coefficient == INT64_MIN ? 1 : term.coefficient);
      std::vector<AtomId> shared;
      size_t from = 0;
      for (AtomId atom : common.atoms) {
        const auto found = std::find(term.atoms.begin() + static_cast<ptrdiff_t>(from), term.atoms.end(), atom);
        if (found == term.atoms.end() || atoms[static_cast<size_t>(atom)].facts.bounds.min < 0) continue;
        shared.push_back(atom);
        from = static_cast<size_t>(found - term.atoms.begin()) + 1;
      }
      common.atoms = std::move(shared);
    }
  };
  keep_shared(a);
  keep_shared(b);
  if (common.coefficient != 1 || !common.atoms.empty()) {
    auto left = DivideExactly(a, {common});
    auto right = DivideExactly(b, {common});
    if (left && right) return FloorDiv(*left, *right);
  }
  const Interval bounds = BoundsOf(a);
  const Interval divisor = BoundsOf(b);
  if (bounds.min >= 0 && bounds.max < std::max<int64_t>(divisor.min, 1)) return Dim::Const(0);
  return AtomDim(AtomKind::kFloorDiv, Intern(a), Intern(b));
}

Dim SymbolTable::Impl::ModByConst(const Poly& a, int64_t k) {
  if (k <= 0) return Dim::Const(INT64_MAX);
  Poly rest = SplitByDivisor(a, k).rest;
  std::erase_if(rest, [&](const Term& term) { return !term.atoms.empty() && DivisorOf(term) % k == 0; });
  if (const auto quotient = OnlyQuotient(BoundsOf(rest), k)) {
    if (const auto offset = CheckedMul(*quotient, -k)) return InternOr(AddPolys(rest, {{1, {}}}, *offset));
  }
  // mod(g*x, g*m) = g * mod(x, m)
  int64_t content = k;
  for (const Term& term : rest) content = std::gcd(content, term.coefficient == INT64_MIN ? 1 : term.coefficient);
  for (Term& term : rest) term.coefficient /= content;
  const Dim mod = AtomDim(AtomKind::kMod, Intern(std::move(rest)), Dim::Const(k / content));
  return content == 1 ? mod : InternOr(MulPolys(ToPoly(mod), {{content, {}}}));
}

Dim SymbolTable::Impl::Mod(const Poly& a, const Poly& b) {
  if (a.empty()) return Dim::Const(0);
  if (const auto k = ConstOf(b)) return ModByConst(a, *k);
  if (DivideExactly(a, b)) return Dim::Const(0);
  const Interval bounds = BoundsOf(a);
  if (bounds.min >= 0 && bounds.max < BoundsOf(b).min) return Intern(a);
  return AtomDim(AtomKind::kMod, Intern(a), Intern(b));
}

Dim SymbolTable::Impl::MinMax(AtomKind kind, Dim a, Dim b) {
  if (a == b) return a;
  const bool is_min = kind == AtomKind::kMin;
  DimFacts a_scratch, b_scratch;
  const Interval a_bounds = FactsOf(a, a_scratch).bounds;
  const Interval b_bounds = FactsOf(b, b_scratch).bounds;
  const auto difference = AddPolys(ToPoly(a), ToPoly(b), -1);
  const Interval bounds = difference ? BoundsOf(*difference) : Interval{INT64_MIN, Interval::kNoBound};
  if (a_bounds.max <= b_bounds.min || bounds.max <= 0) return is_min ? a : b;
  if (b_bounds.max <= a_bounds.min || bounds.min >= 0) return is_min ? b : a;
  // min(x, min(x, y)) = min(x, y)
  const auto contains = [&](Dim outer, Dim operand) {
    const Poly poly = ToPoly(outer);
    if (poly.size() != 1 || poly[0].coefficient != 1 || poly[0].atoms.size() != 1) return false;
    const Atom& atom = atoms[static_cast<size_t>(poly[0].atoms[0])];
    return atom.kind == kind && (atom.left == operand || atom.right == operand);
  };
  if (contains(a, b)) return a;
  if (contains(b, a)) return b;
  if (CompareDims(a, b) > 0) std::swap(a, b);
  return AtomDim(kind, a, b);
}

}  // namespace kiln
