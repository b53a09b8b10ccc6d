// In place: which operand of a kernel may lie in the same memory as its result.
//
// Why that is sound, for any spec that InPlaceOperands names, any parts of its range, on any number of threads:
// - Same map: every access to the operand has the element size, loops and (once `equal_arguments` hold) strides of the
//   store, and no stride is 0 over a loop of more than one turn. So element e of the operand and of the result have one
//   address, and belong to one point of the loops. Points of different parts of the range, hence different threads,
//   touch different elements.
// - Read first: a point's operand is loaded before its result is stored, and never after. Loop nests run their
//   stages in order for one outer point (or one block of the inner dim); no stage behind the first store to the result
//   loads the operand. Epilogues of contractions and windows run once per element, when its sum is complete, loads
//   before stores; sums that wait do so in the kernel's own memory.
// - Nothing else reads it: the operand is no factor, window input, weight or row of zeros, and no table of a lookup.
// Code generation relies on none of these pointers being distinct: it emits no alias metadata, and loads ahead of a
// store only what is no later stage's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "compile-service/ir/kernel_spec.h"

namespace kiln::ir {

struct InPlaceOperand {
  int32_t stored = 0, loaded = 0;                            // pointers
  std::vector<std::pair<int32_t, int32_t>> equal_arguments;  // dims arguments (strides) that must be equal
  bool operator==(const InPlaceOperand&) const = default;
};

// Of a spec that VerifySpec accepts. A pointer may appear in several; a use takes every pointer at most once.
std::vector<InPlaceOperand> InPlaceOperands(const KernelSpec& spec);

// The operands that `dims` allow, every pointer at most once: those that come first, counted round from pair `first`.
std::vector<InPlaceOperand> InPlaceAt(const KernelSpec& spec, std::span<const int64_t> dims, size_t first = 0);

}  // namespace kiln::ir
