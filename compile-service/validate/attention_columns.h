// Attention by columns: the queries of one item at a time. Part of EvaluateByColumns.
#pragma once

#include "compile-service/validate/spec_call.h"

namespace kiln {

void EvaluateAttention(const ir::AttentionSpec& spec, const SpecCall& call, int64_t begin, int64_t end);

}  // namespace kiln
