// Random valid programs, and inputs for them, from a seed: what round-trip, differential and mutation tests run on.
//
// Shapes are worked out here, independently of the shape rules, so that a test can hold the two against each other: a
// value's dims evaluated at the chosen symbol values are the dims it has at run time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/bytecode/program.h"

namespace kiln::testing {

struct RandomProgramOptions {
  int nodes = 12;              // of the body, about; regions come on top
  bool control_flow = true;    // If, Loop and Scan
  bool data_dependent = true;  // NonZero and what follows from it, with symbols that only a run can bind
  bool odd_names = true;       // empty, equal and unprintable names
  bool only_f32 = false;       // every float is f32, no integers but where an op needs them
};

// Values stay of moderate size: ops that overflow or divide are left out, so that tolerances mean something. Sizes of 0
// are legal for every symbol whose range allows it.
Program RandomProgram(uint64_t seed, const RandomProgramOptions& options = {});

// A value for every symbol, indexed by SymbolId, within its range and divisor; 0 and 1 come often. Symbols that only a
// run binds get one too, which means nothing.
std::vector<int64_t> RandomSymbolValues(const Program& program, uint64_t seed);
// Every symbol at the value, or at the nearest its range and divisor allow.
std::vector<int64_t> SymbolValuesNear(const Program& program, int64_t value);

// Dims of a desc at the symbol values. Precondition: it has a rank and evaluates.
Dims ConcreteDims(const TensorDesc& desc, const SymbolTable& symbols, std::span<const int64_t> symbol_values);
Tensor RandomTensor(DType dtype, const Dims& dims, uint64_t seed);
// One contiguous tensor per input of the entry function.
std::vector<Tensor> RandomInputs(const Program& program, std::span<const int64_t> symbol_values, uint64_t seed);

// Whether two programs are the same in everything, constants by their bytes; the text of the first difference, or "".
std::string DifferenceOf(const Program& a, const Program& b);

}  // namespace kiln::testing
