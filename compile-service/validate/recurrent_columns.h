// Recurrences by columns: a run of units at a time. Part of EvaluateByColumns.
#pragma once

#include "compile-service/validate/spec_call.h"

namespace kiln {

void EvaluateRecurrence(const ir::RecurrentSpec& spec, const SpecCall& call, int64_t begin, int64_t end);

}  // namespace kiln
