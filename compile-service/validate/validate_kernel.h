// Runs a new kernel once against the reference evaluation of its spec, before anybody is offered it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/result.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln {

// Calls the kernel with `trial_dims` and, as far as limits::kTrialsPerKernelMax allows, at the edges around the first
// of them (edge_trials.h), and each of those calls once more with results in the place of operands where in_place.h
// allows it. Compares whole buffers after running the same parts of the range with both: every part when
// the work is small, otherwise the first, the last and random ones. Every element that differs must be one where a
// decision on inexact arithmetic may fall either way (decisions.h), and have a value that one of the ways gives. Inputs
// are random, some with special values; each buffer ends at a guard page, so that a stray access kills the process
// (validation children are forked per job). Returns how many calls ran and were compared: 0 when the host cannot run
// `target`, or no call has anything to do. CompileFailed names the trial, pointer, element and both values.
Result<uint32_t> ValidateKernel(const ir::KernelSpec& spec, std::span<const uint8_t> code, Target target,
                                std::span<const std::vector<int64_t>> trial_dims, uint64_t seed);

}  // namespace kiln
