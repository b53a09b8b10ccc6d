#include <algorithm>

#include "common/artifact/plan.h"
#include "common/base/byte_io.h"
#include "common/base/checked_math.h"
#include "common/base/limits.h"

namespace kiln {
namespace {

constexpr uint32_t kGuardVersion = 1;

std::string Allowed(const SymbolGuard& guard) {
  if (guard.min == guard.max) return "exactly " + std::to_string(guard.min);
  std::string text =
      std::to_string(guard.min) + ".." + (guard.max == Interval::kNoBound ? "" : std::to_string(guard.max));
  if (guard.divisor > 1) text += ", multiples of " + std::to_string(guard.divisor);
  return text;
}

// Generality of a guard: number of non-constant symbols, then the sum of their (saturated) widths.
std::pair<size_t, double> Generality(const Guard& guard) {
  size_t open = 0;
  double width = 0;
  for (const SymbolGuard& symbol : guard.symbols) {
    if (symbol.min == symbol.max) continue;
    ++open;
    width += (static_cast<double>(symbol.max) - static_cast<double>(symbol.min)) / static_cast<double>(symbol.divisor);
  }
  return {open, width};
}

}  // namespace

Tolerance ToleranceOf(NumericMode mode) {
  switch (mode) {
#define KILN_NUMERIC_MODE(value, name, rtol, atol, doc) \
  case NumericMode::k##name:                            \
    return {rtol, atol};
#include "common/artifact/numeric_modes.def"
#undef KILN_NUMERIC_MODE
  }
  return {};
}

std::optional<NumericMode> NumericModeFromNumber(uint8_t number) {
  switch (static_cast<NumericMode>(number)) {
#define KILN_NUMERIC_MODE(value, name, rtol, atol, doc) \
  case NumericMode::k##name:                            \
    return NumericMode::k##name;
#include "common/artifact/numeric_modes.def"
#undef KILN_NUMERIC_MODE
  }
  return std::nullopt;
}

std::string_view PlanTierName(PlanTier tier) {
  switch (tier) {
#define KILN_PLAN_TIER(value, name, text, doc) \
  case PlanTier::k##name:                      \
    return text;
#include "common/artifact/plan_tiers.def"
#undef KILN_PLAN_TIER
  }
  return "unknown";
}

std::optional<PlanTier> PlanTierFromNumber(uint8_t number) {
  switch (static_cast<PlanTier>(number)) {
#define KILN_PLAN_TIER(value, name, text, doc) \
  case PlanTier::k##name:                      \
    return PlanTier::k##name;
#include "common/artifact/plan_tiers.def"
#undef KILN_PLAN_TIER
  }
  return std::nullopt;
}

std::optional<GuardFailure> CheckGuard(const Guard& guard, const SymbolTable& symbols,
                                       std::span<const int64_t> symbol_values, std::span<const TensorRef> inputs) {
  if (symbol_values.size() < guard.symbols.size())
    return GuardFailure{"the call binds fewer symbols than the plan has"};
  if (inputs.size() != guard.inputs.size()) return GuardFailure{"the call has another number of inputs than the plan"};
  for (size_t i = 0; i < guard.symbols.size(); ++i) {
    const SymbolGuard& allowed = guard.symbols[i];
    const int64_t value = symbol_values[i];
    if (value < 0) continue;  // known only inside the segment
    if (value < allowed.min || value > allowed.max || value % allowed.divisor != 0)
      return GuardFailure{"symbol " + symbols.symbol(static_cast<SymbolId>(i)).name + " is " + std::to_string(value) +
                          "; the plan holds for " + Allowed(allowed)};
  }
  for (const Constraint& constraint : guard.constraints) {
    const Result<int64_t> left = symbols.Evaluate(constraint.left, symbol_values);
    const Result<int64_t> right = symbols.Evaluate(constraint.right, symbol_values);
    if (!left || !right || !Holds(constraint.kind, *left, *right))
      return GuardFailure{"the plan assumes " + symbols.ToString(constraint) + ", which does not hold here"};
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "input " + std::to_string(i);
    if (guard.inputs[i].contiguous && !inputs[i].IsContiguous()) return GuardFailure{name + " is not contiguous"};
    if (guard.inputs[i].alignment == AlignmentClass::k64 && reinterpret_cast<uintptr_t>(inputs[i].data) % 64 != 0)
      return GuardFailure{name + " is not aligned to 64 bytes"};
    if (inputs[i].elements() > guard.max_elements)
      return GuardFailure{name + " has more than " + std::to_string(guard.max_elements) + " elements"};
  }
  return std::nullopt;
}

std::vector<uint8_t> EncodeGuard(const Guard& guard, const SymbolTable& symbols) {
  ByteWriter writer;
  writer.U32(kGuardVersion);
  writer.U32(static_cast<uint32_t>(guard.symbols.size()));
  for (const SymbolGuard& symbol : guard.symbols) {
    writer.I64(symbol.min);
    writer.I64(symbol.max);
    writer.I64(symbol.divisor);
  }
  writer.U32(static_cast<uint32_t>(guard.constraints.size()));
  for (const Constraint& constraint : guard.constraints) {
    writer.U8(static_cast<uint8_t>(constraint.kind));
    writer.Int64s(symbols.Encode(constraint.left));
    writer.Int64s(symbols.Encode(constraint.right));
  }
  writer.U32(static_cast<uint32_t>(guard.inputs.size()));
  for (const InputGuard& input : guard.inputs) {
    writer.U8(input.contiguous ? 1 : 0);
    writer.U8(static_cast<uint8_t>(input.alignment));
  }
  writer.I64(guard.max_elements);
  return writer.Take();
}

Result<Guard> DecodeGuard(std::span<const uint8_t> bytes, SymbolTable* symbols) {
  ByteReader reader(bytes);
  Guard guard;
  *symbols = SymbolTable();
  if (reader.U32() != kGuardVersion) return Fail(ErrorCode::kMalformed, "guard has an unknown version");
  guard.symbols.resize(reader.Count(24, limits::kGuardSymbolsMax));
  for (SymbolGuard& symbol : guard.symbols) {
    symbol = {reader.I64(), reader.I64(), reader.I64()};
    if (!reader.ok() || symbol.min < 0 || symbol.max < symbol.min || symbol.divisor < 1)
      return Fail(ErrorCode::kMalformed, "guard has an impossible symbol range");
    symbols->FreshSymbol({symbol.min, symbol.max}, symbol.divisor);
  }
  const size_t constraints = reader.Count(9, limits::kGuardConstraintsMax);
  for (size_t i = 0; i < constraints; ++i) {
    const uint8_t kind = reader.U8();
    const std::vector<int64_t> left = reader.Int64s(limits::kGuardExpressionWordsMax),
                               right = reader.Int64s(limits::kGuardExpressionWordsMax);
    const std::optional<ConstraintKind> named = ConstraintKindFromNumber(kind);
    if (!reader.ok() || !named) return Fail(ErrorCode::kMalformed, "guard has an unknown or cut constraint");
    Constraint constraint{*named, {}, {}};
    ASSIGN_OR_RETURN(constraint.left, symbols->Decode(left));
    ASSIGN_OR_RETURN(constraint.right, symbols->Decode(right));
    guard.constraints.push_back(constraint);
  }
  guard.inputs.resize(reader.Count(2, limits::kGuardInputsMax));
  for (InputGuard& input : guard.inputs) {
    const uint8_t contiguous = reader.U8(), alignment = reader.U8();
    if (contiguous > 1 || alignment > 1) reader.Reject();
    input = {contiguous == 1, static_cast<AlignmentClass>(alignment)};
  }
  guard.max_elements = reader.I64();
  if (!reader.AtEnd()) return Fail(ErrorCode::kMalformed, "guard ends early or has bytes left over");
  return guard;
}

bool MoreSpecific(const Guard& a, const Guard& b) {
  return Generality(a) < Generality(b);
}

}  // namespace kiln
