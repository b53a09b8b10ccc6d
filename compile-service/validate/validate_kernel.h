// Runs a new kernel once against the naive evaluator of its spec, before anybody is offered it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/result.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln {

// Compares whole buffers after running the same parts of the range with both: every part when the work is small,
// otherwise the first, the last and random ones. Inputs are random, some with special values; each buffer ends at a
// guard page, so that a stray access kills the process (validation children are forked per job). Returns how many calls
// were compared: 0 when the host cannot run `target`. CompileFailed names the trial, pointer, element and both values.
Result<uint32_t> ValidateKernel(const ir::KernelSpec& spec, std::span<const uint8_t> code, Target target,
                                std::span<const std::vector<int64_t>> trial_dims, uint64_t seed);

}  // namespace kiln
