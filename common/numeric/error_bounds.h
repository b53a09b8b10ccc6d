// How far a plan's value may be from the interpreter's: bounds per op class (error_classes.def), propagated along the
// program.
//
// The rule. A value's error e, relative to a magnitude, is the largest e of its inputs plus what its own op adds: the
// longest path of roundings from the inputs. That is a first-order model; what an ill-conditioned step makes of its
// inputs' error beyond that is paid by the mode's margin: margin * e is allowed, at most the mode's rtol, or
// kHalfRoundoffsMax roundoffs of a 16-bit type that a value upstream was rounded to (one of them is as large as the
// whole rtol). The magnitude is the widest scope on the way:
//   Bits     no float arithmetic upstream: the same bits (any NaN equals any NaN)
//   Equal    exact arithmetic upstream: equal values
//   Element  the element itself: nothing upstream can cancel
//   Row      the largest magnitude of the element's row (innermost dim; rows of fewer than kRowElementsMin elements
//            count as one with their neighbours), plus the mode's atol / rtol: an error of a sum is relative to its
//            terms, which cancellation may leave no trace of in the element
// A loop is walked once; its growth per iteration counts kLoopIterationsMax times. An unknown length counts as
// kUnknownLength.
#pragma once

#include <span>
#include <vector>

#include "common/artifact/plan.h"
#include "common/bytecode/program.h"

namespace kiln {

enum class ErrorClass : uint8_t {
#define KILN_ERROR_CLASS(value, name, units, scope, doc) k##name = value,
#include "common/numeric/error_classes.def"
#undef KILN_ERROR_CLASS
};
ErrorClass ErrorClassOf(const TensorOpInfo& op);

enum class ErrorScope : uint8_t { kBits = 0, kEqual = 1, kElement = 2, kRow = 3 };

// |expected - actual| <= relative * (magnitude + floor) + tiny, with the magnitude of `scope`; for kBits and kEqual no
// difference. Integers and bool are always exact.
struct ErrorBound {
  ErrorScope scope = ErrorScope::kBits;
  double relative = 0;
  double floor = 0;
  double tiny = 0;  // the smallest normal number: results below it may be flushed to zero
};

inline constexpr int64_t kRowElementsMin = 16;
inline constexpr double kHalfRoundoffsMax = 16;
inline constexpr int64_t kUnknownLength = 4096;
inline constexpr int64_t kLoopIterationsMax = 64;

// Of every value of the entry function (values of other regions than those that lead to it included), by ValueId. Its
// inputs and the constants are taken as exact. `symbols`: values of the program's symbols, empty or negative entries
// where unknown.
std::vector<ErrorBound> ValueErrorBounds(const Program& program, std::span<const int64_t> symbols, NumericMode mode);
// InvalidArgument where two runs of a program have nothing to be compared by: a node draws random numbers, and the
// error names it.
Status RequireRepeatable(const Program& program);
// Of the entry function's outputs.
std::vector<ErrorBound> OutputErrorBounds(const Program& program, std::span<const int64_t> symbols, NumericMode mode);

}  // namespace kiln
