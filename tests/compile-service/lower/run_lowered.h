// Executes a lowered segment step by step, naively: the oracle for lowering that needs neither code generation nor a
// worker.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/segment/segment.h"
#include "compile-service/lower/lower_segment.h"

namespace kiln::testing {

// Runs [begin, end) of a spec; by default ir::EvaluateSpec.
using SpecRunner = std::function<Status(const ir::KernelSpec& spec, std::span<void* const> pointers,
                                        std::span<const int64_t> dims, int64_t begin, int64_t end)>;
SpecRunner NaiveRunner(int f32_lanes);

// Checks every place against the size of its storage, ranges against the specs, and buffers against their lifetimes:
// memory that is not alive is overwritten. `symbols` as BindSymbols gives them.
Result<std::vector<Tensor>> RunLowered(const lower::LoweredSegment& lowered, std::span<const int64_t> symbols,
                                       std::span<const TensorRef> inputs, std::span<const TensorRef> weights,
                                       int f32_lanes, const SpecRunner& runner);

// Whether the guard's facts about symbols hold.
bool GuardAdmits(const Guard& guard, const SymbolTable& symbols, std::span<const int64_t> values);

// "step 3: conv 1x1 + add (kernel 2)" per step.
std::string Describe(const lower::LoweredSegment& lowered);

}  // namespace kiln::testing
