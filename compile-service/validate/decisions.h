// Decisions: where in a scalar program a rounding error becomes a step (rounding, comparing, converting to an integer).
//
// A decision on a value that float arithmetic made may fall either way when the value lies within the tolerance of the
// edge, and both ways are right. To tell such an element from a wrong one, the reference is evaluated again with every
// such value leant to one side before it is decided on. A decision on an exact value (a load, an integer, the result
// of another decision) has one right answer.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compile-service/ir/kernel_spec.h"

namespace kiln {

// kUp and kDown lean every value the same way, the others each by its place in a row of signs of their own.
enum class Leaning : uint8_t { kNone, kUp, kDown, kMixed, kMixedToo };

inline constexpr double kTolerance = 2e-4;  // of a float, relative to 1 + its magnitude: as outputs are compared

// A float sum is right to this part of itself, whatever the order of its terms (of one sign). Where the terms then lose
// what they have in common, as x - mean(x) does, this part is all that is left; it leans with the decisions.
inline constexpr double kSumTolerance = 0x1p-21;

// By the magnitude of what is decided on.
inline double LeanOf(double magnitude) {
  return kTolerance * (1 + magnitude);
}

struct Decisions {
  std::vector<bool> inexact;  // per node: a float that arithmetic made
  std::vector<bool> leans;    // per node: it decides on an inexact operand
};

// Whether what a Load of the access, or a StageResult or Accumulator of the index, reads is inexact; `inexact` has the
// nodes before it.
using ReadsInexact = std::function<bool(int32_t index, const std::vector<bool>& inexact)>;

Decisions FindDecisions(const ir::ScalarProgram& program, const ReadsInexact& load, const ReadsInexact& result);

// Per access, whether its pointer is one that `stores` write floats to: what it reads may be an earlier result.
std::vector<bool> ReadsOfWritten(const std::vector<ir::Access>& accesses, const std::vector<ir::Store>& stores);

}  // namespace kiln
