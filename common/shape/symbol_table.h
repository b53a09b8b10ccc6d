// Symbolic dimensions: symbols with bounds and divisors, integer expressions over them, and constraints.
//
// A Dim is a small handle; what it means lives in the SymbolTable that made it. Expressions are hash-consed in a normal
// form (a sum of integer coefficients times products of atoms; an atom is a symbol or a floordiv, mod, min, max of
// expressions), so that two Dims that are equal as polynomials are equal as handles. Constants never need a table:
// operations on constants alone are as cheap as integers.
//
// Not thread-safe while it is being extended; const members are safe to call concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/checked_math.h"
#include "common/base/result.h"

namespace kiln {

using SymbolId = int32_t;

class Dim {
 public:
  enum class Kind : uint8_t { kConst, kSymbol, kExpr };
  constexpr Dim() = default;
  static constexpr Dim Const(int64_t value) { return Dim(Kind::kConst, value); }
  constexpr Kind kind() const { return kind_; }
  constexpr bool is_const() const { return kind_ == Kind::kConst; }
  constexpr int64_t value() const { return payload_; }                           // precondition: is_const()
  constexpr SymbolId symbol() const { return static_cast<SymbolId>(payload_); }  // precondition: kSymbol
  constexpr bool operator==(const Dim&) const = default;

 private:
  friend class SymbolTable;
  constexpr Dim(Kind kind, int64_t payload) : kind_(kind), payload_(payload) {}
  Kind kind_ = Kind::kConst;
  int64_t payload_ = 0;
};

// Closed integer interval; `max` may be kNoBound.
struct Interval {
  static constexpr int64_t kNoBound = INT64_MAX;
  int64_t min = 0;
  int64_t max = kNoBound;
  bool operator==(const Interval&) const = default;
};

struct Symbol {
  std::string name;     // unique in its table; canonical forms drop it
  Interval range;       // every value it may take
  int64_t divisor = 1;  // every value is a multiple of it
};

enum class ConstraintKind : uint8_t {
#define KILN_CONSTRAINT(value, name, text, doc) k##name = value,
#include "common/shape/constraints.def"
#undef KILN_CONSTRAINT
};

// A fact that must hold between expressions; checked at entry, and assumed by whatever was derived under it.
struct Constraint {
  ConstraintKind kind;
  Dim left;
  Dim right;
  bool operator==(const Constraint&) const = default;
};

// Whether `left` and `right` are related as `kind` says; "divides" needs a positive divisor.
bool Holds(ConstraintKind kind, int64_t left, int64_t right);
// The kind of a number that was read; nullopt: there is none.
std::optional<ConstraintKind> ConstraintKindFromNumber(int number);

// What no values satisfy, as text: a constraint, or a symbol whose range holds no multiple of its divisor.
struct Contradiction {
  std::optional<size_t> constraint;  // the index of the one at which it showed; none: a symbol's own range
  std::string text;
};

class SymbolTable {
 public:
  SymbolTable();
  ~SymbolTable();
  SymbolTable(const SymbolTable&);
  SymbolTable& operator=(const SymbolTable&);
  SymbolTable(SymbolTable&&) noexcept;
  SymbolTable& operator=(SymbolTable&&) noexcept;

  // --- symbols ---
  // AlreadyExists if the name is taken with other facts. Empty name: a fresh one is made ("s3").
  Result<Dim> AddSymbol(std::string_view name, Interval range = {}, int64_t divisor = 1);
  Dim FreshSymbol(Interval range = {}, int64_t divisor = 1);
  std::optional<Dim> FindSymbol(std::string_view name) const;
  size_t symbol_count() const;
  const Symbol& symbol(SymbolId id) const;
  Dim SymbolDim(SymbolId id) const;

  // --- expressions; constants fold, results are in normal form. A constant overflow saturates at the int64 limits,
  // which absorb what is added to them and which every consumer rejects as too large; an expression that grows past
  // the limits of this module becomes one that never evaluates. Division and modulus round towards minus infinity; the
  // divisor must be positive (a constant that is not gives INT64_MAX). ---
  Dim Add(Dim a, Dim b);
  Dim Sub(Dim a, Dim b);
  Dim Mul(Dim a, Dim b);
  Dim FloorDiv(Dim a, Dim b);
  Dim CeilDiv(Dim a, Dim b);
  Dim Mod(Dim a, Dim b);
  Dim Min(Dim a, Dim b);
  Dim Max(Dim a, Dim b);
  // a / b where b divides a exactly for every value (Reshape's -1); folds polynomials, else FloorDiv.
  Dim ExactDiv(Dim a, Dim b);

  // --- questions ---
  // Whether the handle is one of this table's: verifiers ask it before they trust a Dim.
  bool Owns(Dim dim) const;
  bool IsTooLarge(Dim dim) const;  // TooLarge(), which equals nothing, not even itself
  // Proven equal / proven different for every legal value; neither means it depends.
  bool ProvenEqual(Dim a, Dim b) const;
  bool ProvenDifferent(Dim a, Dim b) const;
  Interval Bounds(Dim dim) const;
  int64_t Divisor(Dim dim) const;  // largest known divisor; >= 1, and 2^40 for the constant 0
  // Symbols that occur in it, ascending, each once.
  std::vector<SymbolId> SymbolsOf(Dim dim) const;
  // Value for the given symbol values (indexed by SymbolId). Fails on overflow or a division by a non-positive value.
  Result<int64_t> Evaluate(Dim dim, std::span<const int64_t> symbol_values) const;
  // Whether nothing but an overflow makes Evaluate fail, whatever the values within the symbols' ranges.
  bool AlwaysEvaluates(Dim dim) const;
  // The same expression over another table: symbol i becomes `mapping[i]`.
  Dim Translate(Dim dim, const SymbolTable& from, std::span<const Dim> mapping);

  // --- constraints ---
  void AddConstraint(Constraint constraint);
  const std::vector<Constraint>& constraints() const;
  // Whether no values satisfy ranges, divisors and constraints, as far as that is found: by what follows from bounds,
  // divisors and constraints that are linear in a symbol, and by trying all values where they are few. Other
  // contradictions are left to Check.
  std::optional<Contradiction> FindContradiction() const;
  // The same as an error, InvalidArgument, which names the symbol or constraint.
  Status CheckConsistent() const;
  // Checks ranges, divisors and constraints. The error names the symbol or expression, its value and the limit.
  Status Check(std::span<const int64_t> symbol_values) const;

  // --- text: "n", "2*n + 1", "floordiv(n, 8)", "min(n, 16)"; Parse accepts what ToString prints, symbols must exist
  // ---
  std::string ToString(Dim dim) const;
  std::string SymbolText(SymbolId id) const;  // its name, quoted where the grammar needs it
  Result<Dim> Parse(std::string_view text);
  Dim TooLarge();  // what an expression past the limits becomes: absorbs everything, never evaluates
  std::string ToString(const Constraint& constraint) const;

  // --- serialisation: expressions as a flat, table-independent list; see program.fbs ---
  // Canonical postfix code of an expression: pairs (operation, operand). Stable across tables with equal symbol ids.
  std::vector<int64_t> Encode(Dim dim) const;
  Result<Dim> Decode(std::span<const int64_t> code);  // rejects hostile code with a reason

 private:
  struct Impl;
  class Narrowing;
  void EncodeInto(Dim dim, std::vector<int64_t>& code) const;
  Dim AddSlow(Dim a, Dim b, int64_t b_factor);
  Dim MulSlow(Dim a, Dim b);
  Dim FloorDivSlow(Dim a, Dim b);
  Dim ModSlow(Dim a, Dim b);
  Dim MinMaxSlow(Dim a, Dim b, bool is_min);

  std::unique_ptr<Impl> impl_;
};

// The paths of constants, which bound programs take almost always. INT64_MAX and INT64_MIN (saturated) go the slow way.
namespace dim_internal {
inline bool AreSmall(Dim a, Dim b) {
  constexpr int64_t kSmall = int64_t{1} << 31;
  return a.is_const() && b.is_const() && a.value() > -kSmall && a.value() < kSmall && b.value() > -kSmall &&
         b.value() < kSmall;
}
}  // namespace dim_internal

inline Dim SymbolTable::Add(Dim a, Dim b) {
  return dim_internal::AreSmall(a, b) ? Dim::Const(a.value() + b.value()) : AddSlow(a, b, 1);
}
inline Dim SymbolTable::Sub(Dim a, Dim b) {
  return dim_internal::AreSmall(a, b) ? Dim::Const(a.value() - b.value()) : AddSlow(a, b, -1);
}
inline Dim SymbolTable::Mul(Dim a, Dim b) {
  return dim_internal::AreSmall(a, b) ? Dim::Const(a.value() * b.value()) : MulSlow(a, b);
}
inline Dim SymbolTable::FloorDiv(Dim a, Dim b) {
  if (dim_internal::AreSmall(a, b) && b.value() > 0) return Dim::Const(kiln::FloorDiv(a.value(), b.value()));
  return FloorDivSlow(a, b);
}
inline Dim SymbolTable::Mod(Dim a, Dim b) {
  if (dim_internal::AreSmall(a, b) && b.value() > 0) return Dim::Const(FloorMod(a.value(), b.value()));
  return ModSlow(a, b);
}
inline Dim SymbolTable::Min(Dim a, Dim b) {
  if (a.is_const() && b.is_const()) return a.value() <= b.value() ? a : b;
  return MinMaxSlow(a, b, true);
}
inline Dim SymbolTable::Max(Dim a, Dim b) {
  if (a.is_const() && b.is_const()) return a.value() >= b.value() ? a : b;
  return MinMaxSlow(a, b, false);
}

}  // namespace kiln
