// Verification of what kernel specs share: the scalar language.
#pragma once

#include <optional>
#include <string>

#include "compile-service/ir/kernel_spec.h"

namespace kiln::ir {

// What leaves a program may have, and how deep its loops are.
struct Surroundings {
  size_t dims = 0;        // of the loops
  int32_t arguments = 0;  // dims arguments of the kernel
  const std::vector<Access>* accesses = nullptr;
  std::optional<DType> accumulator;
  int32_t accumulators = 1;  // of that type
  const LoopNestSpec* nest = nullptr;
};

// Accesses are well formed; a nest's stages may not be. InvalidArgument names the node and the rule; Unsupported: an
// elementary function of f64.
Status CheckScalarProgram(const ScalarProgram& program, const Surroundings& around);

inline std::unexpected<Error> InvalidSpec(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

}  // namespace kiln::ir
