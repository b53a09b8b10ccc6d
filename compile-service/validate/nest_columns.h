// Loop nests by columns: a run of inner positions at a time. Part of EvaluateByColumns.
#pragma once

#include "compile-service/validate/spec_call.h"

namespace kiln {

void EvaluateNest(const ir::LoopNestSpec& spec, const SpecCall& call, int64_t begin, int64_t end);

}  // namespace kiln
