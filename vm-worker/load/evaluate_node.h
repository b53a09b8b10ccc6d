// Runs one node at load, when all its inputs are constants.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/bytecode/program.h"
#include "common/tensor/tensor.h"

namespace kiln {

// Whether a node may be evaluated at load as far as its op goes: no control flow, no randomness, and not a
// DequantizeLinear of more than an immediate (its integer form is what the quantised kernels want).
bool MayEvaluate(const Node& node, std::span<const Tensor* const> inputs);

// The outputs of a node over constant inputs (nullptr: absent), contiguous; `outputs` are the descs that the shape rule
// gave. nullopt: leave the node to run time (no kernel, not bounded: the results would exceed both 64 KiB and the
// inputs, or the kernel rejects the values, which must only matter if the node is reached).
std::optional<std::vector<Tensor>> EvaluateNode(const Program& program, const Node& node,
                                                std::span<const Tensor* const> inputs,
                                                std::span<const TensorDesc> outputs);

}  // namespace kiln
