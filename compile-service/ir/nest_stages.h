// The stages of a loop nest among each other: what each computes, and what it may read.
#pragma once

#include "compile-service/ir/kernel_spec.h"

namespace kiln::ir {

// What VerifySpec asks of stage `at`, of a nest whose body, accesses and stores are well formed.
Status CheckNestStage(const LoopNestSpec& nest, size_t at);

// The nodes that a stage computes; of a scatter's place, the position.
std::vector<int32_t> RootsOf(const LoopNestSpec& nest, const Stage& stage);
// Which nodes of `program` the roots reach.
std::vector<bool> ReachableNodes(const ScalarProgram& program, std::span<const int32_t> roots);

}  // namespace kiln::ir
