// A kernel spec with data, as CUDA C++ that the processor runs, and the check that it agrees with the naive evaluator.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/compile-service/codegen/spec_case.h"
#include "tests/support/cuda/shim_kernels.h"
#include "tests/support/random_loop_nest.h"

namespace kiln::testing {

inline constexpr Target kShimTarget = Target::kSm80;  // the text is the same for all of them
inline constexpr int kShimLanes = 32;

struct ShimCase {
  ir::KernelSpec spec;
  std::vector<int64_t> dims;
  std::vector<PointerMemory> memory;
  std::function<double(DType)> tolerance;  // of 1 + |expected|, by storage
  std::string name;
};

ShimCase ShimCaseOf(const SpecCase& test);
ShimCase ShimCaseOf(RandomKernel kernel, std::string name);

// Runs the kernel whole and in parts, in every schedule, and a part alone. What is wrong, or nothing: a fault that the
// shim found, an element that is not the evaluator's, bits that depend on the schedule or on how the range is cut.
std::optional<std::string> WrongInShim(const ShimKernels& kernels, size_t kernel, const ShimCase& test,
                                       std::mt19937_64& random);

// Emits all of `cases`, compiles them together and expects none of them to be wrong.
void ExpectShimAgrees(const std::vector<ShimCase>& cases, std::mt19937_64& random);

}  // namespace kiln::testing
