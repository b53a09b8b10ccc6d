// The binary form of a Program: a FlatBuffer (schemas/program.fbs) whose weights are inline or lie in another file.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/program.h"
#include "common/bytecode/weights.h"

namespace kiln {

struct EncodeOptions {
  WeightPlacement placement;  // constants that are only referred to; absent: all bytes are inline
};
// LimitExceeded where the result would pass kProgramBytesMax: place the weights in a file of their own.
// Precondition: VerifyProgram accepts the program.
Result<std::vector<uint8_t>> EncodeProgram(const Program& program, const EncodeOptions& options = {});

struct DecodeOptions {
  WeightSource* weights = nullptr;  // resolves external constants; not needed where there are none
  // What owns `bytes`. If given, inline constants that are aligned for their elements stay in place and keep it alive;
  // otherwise they are copied.
  std::shared_ptr<const void> owner;
};
// Malformed for whatever is not a program, Unsupported for one that needs ops this build lacks. The result has passed
// VerifyProgram. Time and memory are bounded by the size of the input.
Result<Program> DecodeProgram(std::span<const uint8_t> bytes, const DecodeOptions& options = {});

}  // namespace kiln
