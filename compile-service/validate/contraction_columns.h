// Products and convolutions by columns: a run of columns of one row at a time. Part of EvaluateByColumns.
#pragma once

#include "compile-service/validate/spec_call.h"

namespace kiln {

void EvaluateContraction(const ir::ContractionSpec& spec, const SpecCall& call, int64_t begin, int64_t end);

}  // namespace kiln
