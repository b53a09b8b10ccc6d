// EvaluateByColumns: what ir::EvaluateSpec computes, bit for bit, and some hundred times faster.
//
// ir::EvaluateSpec is the definition of a spec, element by element; this is the reference that validation can afford to
// run often. Tests hold the two together over random specs.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/result.h"
#include "compile-service/ir/kernel_spec.h"
#include "compile-service/validate/decisions.h"

namespace kiln {

// Parameters and errors as those of ir::EvaluateSpec, to which kinds of kernel without a form of their own here go.
// `leaning`: what is computed when every decision falls to one side where it may (decisions.h).
Status EvaluateByColumns(const ir::KernelSpec& spec, std::span<void* const> pointers, std::span<const int64_t> dims,
                         int f32_lanes, int64_t begin, int64_t end, Leaning leaning = Leaning::kNone);

}  // namespace kiln
