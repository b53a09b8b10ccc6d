// Internals of SymbolTable: polynomials over hash-consed atoms. Private to common/shape.
//
// A polynomial is a sum of terms, highest degree first (graded lexicographic order, which multiplication preserves, so
// that long division works); a term is a non-zero coefficient times a product of atoms. The order of atoms is
// structural: it depends on symbol ids only, never on the order in which a table met the expressions.
#pragma once

#include <map>
#include <unordered_map>

#include "common/shape/symbol_table.h"

namespace kiln {

using AtomId = int32_t;

enum class AtomKind : uint8_t {
  kSymbol = 1,
  kFloorDiv = 2,
  kMod = 3,
  kMin = 4,
  kMax = 5,
  kProduct = 6,   // of two sums whose expansion would pass kDimTermsMax
  kTooLarge = 7,  // stands for any expression beyond the limits; absorbs everything, never evaluates
};

struct Term {
  int64_t coefficient;
  std::vector<AtomId> atoms;  // ascending in structural order, repeated for powers
  bool operator==(const Term&) const = default;
};
using Poly = std::vector<Term>;

// What is kept about an atom or a polynomial when it is made; symbols never change, so neither do these.
struct DimFacts {
  Interval bounds;
  int64_t divisor = 1;
  int32_t nodes = 1;  // size written out as a tree
  int32_t depth = 0;
};

struct Atom {
  AtomKind kind;
  SymbolId symbol = -1;
  Dim left, right;
  DimFacts facts;
};

struct Expr {
  Poly poly;
  DimFacts facts;
};

// What Divisor() reports for 0, which every number divides.
inline constexpr int64_t kDivisorOfZero = int64_t{1} << 40;

Interval AddIntervals(Interval a, Interval b);
Interval MulIntervals(Interval a, Interval b);
Interval FloorDivIntervals(Interval a, Interval b);

struct SymbolTable::Impl {
  std::vector<Symbol> symbols;
  std::vector<AtomId> symbol_atoms;
  std::map<std::string, SymbolId, std::less<>> by_name;
  std::vector<Atom> atoms;
  std::vector<Expr> exprs;
  std::unordered_multimap<uint64_t, int32_t> atom_index;
  std::unordered_multimap<uint64_t, int32_t> expr_index;
  std::vector<Constraint> constraints;

  // --- polynomials; nullopt: a coefficient overflowed or a limit was passed ---
  Poly ToPoly(Dim dim) const;
  std::optional<Poly> AddPolys(const Poly& a, const Poly& b, int64_t b_factor) const;
  std::optional<Poly> MulPolys(const Poly& a, const Poly& b) const;
  // q with q * b == a, if there is one.
  std::optional<Poly> DivideExactly(const Poly& a, const Poly& b) const;
  std::optional<Term> DivideTerms(const Term& a, const Term& b) const;
  Interval BoundsOf(const Poly& poly) const;
  int64_t DivisorOf(const Term& term) const;
  int64_t DivisorOf(const Poly& poly) const;
  const DimFacts& FactsOf(Dim dim, DimFacts& scratch) const;

  // --- structural order ---
  int CompareAtoms(AtomId a, AtomId b) const;
  int CompareDims(Dim a, Dim b) const;
  int ComparePolys(const Poly& a, const Poly& b) const;
  int CompareMonomials(const Term& a, const Term& b) const;

  // --- interning ---
  Dim Intern(Poly poly);
  Dim InternOr(std::optional<Poly> poly) { return poly ? Intern(*std::move(poly)) : TooLarge(); }
  Dim TooLarge();
  bool IsTooLarge(Dim dim) const;
  AtomId InternAtom(Atom atom);
  Dim AtomDim(AtomKind kind, Dim left, Dim right);
  void ResolveExactQuotients(Poly& poly) const;

  // --- operations ---
  Dim FloorDiv(const Poly& a, const Poly& b);
  Dim FloorDivByConst(const Poly& a, int64_t k);
  Dim ModByConst(const Poly& a, int64_t k);
  Dim Mod(const Poly& a, const Poly& b);
  Dim MinMax(AtomKind kind, Dim a, Dim b);
  Result<int64_t> Evaluate(Dim dim, std::span<const int64_t> values) const;
  Result<int64_t> EvaluateAtom(AtomId id, std::span<const int64_t> values) const;
  bool AlwaysEvaluates(Dim dim) const;
  void CollectSymbols(Dim dim, std::vector<SymbolId>& out) const;
};

}  // namespace kiln
