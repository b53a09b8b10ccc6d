// The compact form's own verifier, for tests and debug builds: it trusts nothing that emission did.
#pragma once

#include "common/bytecode/compact.h"

namespace kiln {

// Every instruction decodes by its format; operands lie in their tables; targets are instruction starts; every
// instruction is reachable; on every path a register is written before it is read or released, paths that meet agree on
// what is defined, and nothing is defined at a RET. The error names the instruction and the operand.
Status VerifyCompact(const CompactProgram& compact, const Program& program);

}  // namespace kiln
