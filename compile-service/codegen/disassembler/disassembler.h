// A kernel's code as text.
#pragma once

#include <span>
#include <string>

#include "common/base/result.h"

namespace kiln::codegen {

// The instructions of a kernel blob that its entry reaches, in address order: jump targets are labels, loop heads say
// how many jumps come back to them, constants that an instruction reads relative to itself are shown as f32, and the
// kinds of instructions are counted in front. Bytes that no instruction reaches are counted as constants. Intel syntax
// for x86. Malformed for what is no blob; at most kListingBytesMax of text and
// kListingInstructionsMax instructions, then a line that says so.
Result<std::string> Disassemble(std::span<const uint8_t> blob);

}  // namespace kiln::codegen
