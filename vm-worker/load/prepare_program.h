// From a Program as written to the Program that is run, segmented and compiled.
#pragma once

#include "common/base/result.h"
#include "common/bytecode/program.h"

namespace kiln {

// Runs the load passes in order. Idempotent; names, order and descs of the entry's inputs and outputs stay (a desc may
// become sharper).
Status PrepareProgram(Program& program);

}  // namespace kiln
