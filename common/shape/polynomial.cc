// Arithmetic, order and interning of polynomials.
#include <algorithm>
#include <numeric>

#include "common/base/checked_math.h"
#include "common/base/limits.h"
#include "common/shape/symbol_table_impl.h"

namespace kiln {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

uint64_t HashPoly(const Poly& poly) {
  uint64_t hash = poly.size();
  for (const Term& term : poly) {
    hash = Mix(hash, static_cast<uint64_t>(term.coefficient));
    for (AtomId atom : term.atoms) hash = Mix(hash, static_cast<uint64_t>(atom));
    hash = Mix(hash, ~uint64_t{0});
  }
  return hash;
}

// Keeps a valid divisor when the product overflows.
int64_t MulDivisors(int64_t a, int64_t b) {
  const auto product = CheckedMul(a, b);
  return product ? *product : std::max(a, b);
}

int64_t AbsDivisor(int64_t value) {
  return value == INT64_MIN ? int64_t{1} << 62 : std::abs(value);
}

int32_t AddNodes(int32_t a, int32_t b) {
  return std::min(a + b, limits::kDimNodesMax + 1);
}

}  // namespace

Poly SymbolTable::Impl::ToPoly(Dim dim) const {
  switch (dim.kind()) {
    case Dim::Kind::kConst:
      return dim.value() == 0 ? Poly{} : Poly{{dim.value(), {}}};
    case Dim::Kind::kSymbol:
      return {{1, {symbol_atoms[static_cast<size_t>(dim.symbol())]}}};
    case Dim::Kind::kExpr:
      return exprs[static_cast<size_t>(dim.payload_)].poly;
  }
  __builtin_unreachable();
}

int SymbolTable::Impl::CompareAtoms(AtomId a, AtomId b) const {
  if (a == b) return 0;
  const Atom& left = atoms[static_cast<size_t>(a)];
  const Atom& right = atoms[static_cast<size_t>(b)];
  if (left.kind != right.kind) return left.kind < right.kind ? -1 : 1;
  if (left.kind == AtomKind::kSymbol) return left.symbol < right.symbol ? -1 : 1;
  const int first = CompareDims(left.left, right.left);
  return first != 0 ? first : CompareDims(left.right, right.right);
}

int SymbolTable::Impl::CompareDims(Dim a, Dim b) const {
  if (a == b) return 0;
  if (a.kind() != b.kind()) return a.kind() < b.kind() ? -1 : 1;
  switch (a.kind()) {
    case Dim::Kind::kConst:
    case Dim::Kind::kSymbol:
      return a.payload_ < b.payload_ ? -1 : 1;
    case Dim::Kind::kExpr:
      return ComparePolys(exprs[static_cast<size_t>(a.payload_)].poly, exprs[static_cast<size_t>(b.payload_)].poly);
  }
  __builtin_unreachable();
}

int SymbolTable::Impl::ComparePolys(const Poly& a, const Poly& b) const {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (const int order = CompareMonomials(a[i], b[i]); order != 0) return order;
    if (a[i].coefficient != b[i].coefficient) return a[i].coefficient < b[i].coefficient ? -1 : 1;
  }
  return a.size() == b.size() ? 0 : a.size() < b.size() ? -1 : 1;
}

// Negative: `a` stands first (higher degree, then the smaller atom at the first difference).
int SymbolTable::Impl::CompareMonomials(const Term& a, const Term& b) const {
  if (a.atoms.size() != b.atoms.size()) return a.atoms.size() > b.atoms.size() ? -1 : 1;
  for (size_t i = 0; i < a.atoms.size(); ++i) {
    if (const int order = CompareAtoms(a.atoms[i], b.atoms[i]); order != 0) return order;
  }
  return 0;
}

std::optional<Poly> SymbolTable::Impl::AddPolys(const Poly& a, const Poly& b, int64_t b_factor) const {
  Poly sum;
  sum.reserve(a.size() + b.size());
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const int order = i == a.size() ? 1 : j == b.size() ? -1 : CompareMonomials(a[i], b[j]);
    if (order < 0) {
      sum.push_back(a[i++]);
      continue;
    }
    auto coefficient = CheckedMul(b[j].coefficient, b_factor);
    if (coefficient && order == 0) coefficient = CheckedAdd(*coefficient, a[i++].coefficient);
    if (!coefficient) return std::nullopt;
    if (*coefficient != 0) sum.push_back({*coefficient, b[j].atoms});
    ++j;
  }
  return sum;
}

std::optional<Poly> SymbolTable::Impl::MulPolys(const Poly& a, const Poly& b) const {
  Poly product;
  const auto before = [this](AtomId x, AtomId y) { return CompareAtoms(x, y) < 0; };
  for (const Term& x : a) {
    Poly row;
    for (const Term& y : b) {
      const auto coefficient = CheckedMul(x.coefficient, y.coefficient);
      if (!coefficient || x.atoms.size() + y.atoms.size() > limits::kDimDegreeMax) return std::nullopt;
      Term term{*coefficient, {}};
      term.atoms.resize(x.atoms.size() + y.atoms.size());
      std::merge(x.atoms.begin(), x.atoms.end(), y.atoms.begin(), y.atoms.end(), term.atoms.begin(), before);
      row.push_back(std::move(term));  // the order of b is kept: multiplication preserves it
    }
    auto sum = AddPolys(product, row, 1);
    if (!sum) return std::nullopt;
    product = *std::move(sum);
  }
  return product;
}

std::optional<Term> SymbolTable::Impl::DivideTerms(const Term& a, const Term& b) const {
  if (b.coefficient == -1 && a.coefficient == INT64_MIN) return std::nullopt;
  if (a.coefficient % b.coefficient != 0) return std::nullopt;
  Term quotient{a.coefficient / b.coefficient, {}};
  size_t j = 0;
  for (AtomId atom : a.atoms) {
    if (j < b.atoms.size() && b.atoms[j] == atom) {
      ++j;
    } else {
      quotient.atoms.push_back(atom);
    }
  }
  if (j != b.atoms.size()) return std::nullopt;
  return quotient;
}

std::optional<Poly> SymbolTable::Impl::DivideExactly(const Poly& a, const Poly& b) const {
  if (b.empty()) return std::nullopt;
  Poly quotient, rest = a;
  while (!rest.empty()) {
    if (quotient.size() > limits::kDimTermsMax) return std::nullopt;
    auto term = DivideTerms(rest.front(), b.front());
    if (!term) return std::nullopt;
    const auto product = MulPolys({*term}, b);
    if (!product) return std::nullopt;
    auto next = AddPolys(rest, *product, -1);
    if (!next) return std::nullopt;
    rest = *std::move(next);
    quotient.push_back(*std::move(term));
  }
  return quotient;
}

Interval SymbolTable::Impl::BoundsOf(const Poly& poly) const {
  Interval sum{0, 0};
  for (const Term& term : poly) {
    Interval product{term.coefficient, term.coefficient};
    for (AtomId atom : term.atoms) product = MulIntervals(product, atoms[static_cast<size_t>(atom)].facts.bounds);
    sum = AddIntervals(sum, product);
  }
  return sum;
}

int64_t SymbolTable::Impl::DivisorOf(const Term& term) const {
  int64_t divisor = AbsDivisor(term.coefficient);
  for (AtomId atom : term.atoms) divisor = MulDivisors(divisor, atoms[static_cast<size_t>(atom)].facts.divisor);
  return divisor;
}

int64_t SymbolTable::Impl::DivisorOf(const Poly& poly) const {
  if (poly.empty()) return kDivisorOfZero;
  int64_t divisor = 0;
  for (const Term& term : poly) divisor = std::gcd(divisor, DivisorOf(term));
  return divisor;
}

const DimFacts& SymbolTable::Impl::FactsOf(Dim dim, DimFacts& scratch) const {
  switch (dim.kind()) {
    case Dim::Kind::kConst:
      scratch = {{dim.value(), dim.value()}, dim.value() == 0 ? kDivisorOfZero : AbsDivisor(dim.value()), 1, 0};
      return scratch;
    case Dim::Kind::kSymbol:
      return atoms[static_cast<size_t>(symbol_atoms[static_cast<size_t>(dim.symbol())])].facts;
    case Dim::Kind::kExpr:
      return exprs[static_cast<size_t>(dim.payload_)].facts;
  }
  __builtin_unreachable();
}

// k * floordiv(x, k) is x when k divides x: normal forms never keep such a quotient under a multiple of its divisor.
void SymbolTable::Impl::ResolveExactQuotients(Poly& poly) const {
  for (size_t i = 0; i < poly.size();) {
    bool changed = false;
    for (size_t j = 0; j < poly[i].atoms.size() && !changed; ++j) {
      const Atom& atom = atoms[static_cast<size_t>(poly[i].atoms[j])];
      if (atom.kind != AtomKind::kFloorDiv || !atom.right.is_const()) continue;
      const int64_t k = atom.right.value();
      DimFacts scratch;
      if (poly[i].coefficient % k != 0 || FactsOf(atom.left, scratch).divisor % k != 0) continue;
      Term rest = poly[i];
      rest.coefficient /= k;
      rest.atoms.erase(rest.atoms.begin() + static_cast<ptrdiff_t>(j));
      const auto product = MulPolys({rest}, ToPoly(atom.left));
      if (!product || product->size() > limits::kDimTermsMax) continue;
      Poly others = poly;
      others.erase(others.begin() + static_cast<ptrdiff_t>(i));
      auto sum = AddPolys(others, *product, 1);
      if (!sum) continue;
      poly = *std::move(sum);
      changed = true;
    }
    i = changed ? 0 : i + 1;
  }
}

Dim SymbolTable::Impl::Intern(Poly poly) {
  ResolveExactQuotients(poly);
  if (poly.empty()) return Dim::Const(0);
  if (poly.size() == 1) {
    const Term& term = poly.front();
    if (term.atoms.empty()) return Dim::Const(term.coefficient);
    const Atom& atom = atoms[static_cast<size_t>(term.atoms.front())];
    if (term.coefficient == 1 && term.atoms.size() == 1 && atom.kind == AtomKind::kSymbol) {
      return Dim(Dim::Kind::kSymbol, atom.symbol);
    }
  }
  // A coefficient at the limits has saturated, or will with the next step: it means nothing any more.
  for (const Term& term : poly) {
    if (term.coefficient == INT64_MIN || std::abs(term.coefficient) == INT64_MAX) return TooLarge();
  }
  const uint64_t hash = HashPoly(poly);
  for (auto [it, end] = expr_index.equal_range(hash); it != end; ++it) {
    if (exprs[static_cast<size_t>(it->second)].poly == poly) return Dim(Dim::Kind::kExpr, it->second);
  }
  DimFacts facts{BoundsOf(poly), DivisorOf(poly), 0, 0};
  for (const Term& term : poly) {
    facts.nodes = AddNodes(facts.nodes, 2);
    for (AtomId id : term.atoms) {
      const DimFacts& atom = atoms[static_cast<size_t>(id)].facts;
      facts.nodes = AddNodes(facts.nodes, atom.nodes);
      facts.depth = std::max(facts.depth, atom.depth);
    }
  }
  if (facts.nodes > limits::kDimNodesMax) return TooLarge();
  exprs.push_back({std::move(poly), facts});
  const int32_t id = static_cast<int32_t>(exprs.size() - 1);
  expr_index.emplace(hash, id);
  return Dim(Dim::Kind::kExpr, id);
}

AtomId SymbolTable::Impl::InternAtom(Atom atom) {
  uint64_t hash = static_cast<uint64_t>(atom.kind);
  hash = Mix(hash, static_cast<uint64_t>(atom.symbol));
  for (Dim dim : {atom.left, atom.right}) {
    hash = Mix(Mix(hash, static_cast<uint64_t>(dim.kind())), static_cast<uint64_t>(dim.payload_));
  }
  for (auto [it, end] = atom_index.equal_range(hash); it != end; ++it) {
    const Atom& other = atoms[static_cast<size_t>(it->second)];
    if (other.kind == atom.kind && other.symbol == atom.symbol && other.left == atom.left &&
        other.right == atom.right) {
      return it->second;
    }
  }
  atoms.push_back(atom);
  const AtomId id = static_cast<AtomId>(atoms.size() - 1);
  atom_index.emplace(hash, id);
  return id;
}

Dim SymbolTable::Impl::TooLarge() {
  const AtomId id = InternAtom({AtomKind::kTooLarge, -1, Dim(), Dim(), {{INT64_MIN, Interval::kNoBound}, 1, 1, 0}});
  return Intern({{1, {id}}});
}

bool SymbolTable::Impl::IsTooLarge(Dim dim) const {
  if (dim.kind() != Dim::Kind::kExpr) return false;
  const Poly& poly = exprs[static_cast<size_t>(dim.payload_)].poly;
  return poly.size() == 1 && poly[0].atoms.size() == 1 &&
         atoms[static_cast<size_t>(poly[0].atoms[0])].kind == AtomKind::kTooLarge;
}

Dim SymbolTable::Impl::AtomDim(AtomKind kind, Dim left, Dim right) {
  DimFacts a_scratch, b_scratch;
  const DimFacts& a = FactsOf(left, a_scratch);
  const DimFacts& b = FactsOf(right, b_scratch);
  DimFacts facts;
  facts.nodes = AddNodes(AddNodes(a.nodes, b.nodes), 1);
  facts.depth = std::max(a.depth, b.depth) + 1;
  if (facts.nodes > limits::kDimNodesMax || facts.depth > limits::kDimDepthMax) return TooLarge();
  switch (kind) {
    case AtomKind::kFloorDiv:
      facts.bounds = FloorDivIntervals(a.bounds, b.bounds);
      if (right.is_const() && a.divisor % right.value() == 0) facts.divisor = a.divisor / right.value();
      break;
    case AtomKind::kMod: {
      const int64_t high =
          b.bounds.max == Interval::kNoBound ? Interval::kNoBound : std::max<int64_t>(b.bounds.max - 1, 0);
      facts.bounds = {0, a.bounds.min >= 0 ? std::min(high, a.bounds.max) : high};
      facts.divisor = std::gcd(a.divisor, b.divisor);
      break;
    }
    case AtomKind::kMin:
      facts.bounds = {std::min(a.bounds.min, b.bounds.min), std::min(a.bounds.max, b.bounds.max)};
      facts.divisor = std::gcd(a.divisor, b.divisor);
      break;
    case AtomKind::kMax:
      facts.bounds = {std::max(a.bounds.min, b.bounds.min), std::max(a.bounds.max, b.bounds.max)};
      facts.divisor = std::gcd(a.divisor, b.divisor);
      break;
    case AtomKind::kProduct:
      facts.bounds = MulIntervals(a.bounds, b.bounds);
      facts.divisor = MulDivisors(a.divisor, b.divisor);
      break;
    case AtomKind::kSymbol:
    case AtomKind::kTooLarge:
      break;
  }
  return Intern({{1, {InternAtom({kind, -1, left, right, facts})}}});
}

}  // namespace kiln
