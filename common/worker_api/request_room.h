// What a worker's requests may hold of its memory, so that no caller can make it take more than there is.
#pragma once

#include <cstdint>

#include "common/base/memory_budget.h"

namespace kiln {

// Half of the budget is the most that messages and tensors of requests have together: the rest is for running them.
// Busy: not now. LimitExceeded: more than they may ever have. Without a budget there is always room. Thread-safe.
Result<MemoryCharge> ChargeRequest(MemoryBudget* budget, int64_t bytes);

// Where the tensors of one message are booked before they are made.
struct TensorRoom {
  MemoryBudget* budget = nullptr;
  int64_t shared_bytes_max = INT64_MAX;  // of those in shared memory; no more than limits::kModelBytesMax either way
  MemoryCharge charge;                   // filled by Decode; lives as long as the tensors
};

}  // namespace kiln
