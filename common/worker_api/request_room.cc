#include "common/worker_api/request_room.h"

#include <fmt/format.h>

namespace kiln {

Result<MemoryCharge> ChargeRequest(MemoryBudget* budget, int64_t bytes) {
  if (budget == nullptr) return MemoryCharge();
  const int64_t share = budget->limit() / 2;
  if (bytes > share)
    return Fail(ErrorCode::kLimitExceeded,
                fmt::format("the request has {} bytes; all requests of this worker together may hold {}, half of "
                            "--memory-bytes. Send a part of the batch at a time, or raise it",
                            bytes, share));
  Result<MemoryCharge> charge = Fail(ErrorCode::kBusy, "");
  if (budget->used(MemoryUse::kRequests) <= share - bytes)
    charge = MemoryCharge::Take(budget, MemoryUse::kRequests, bytes, WithoutRoom::kGoWithout);
  if (charge.has_value()) return charge;
  return Fail(
      ErrorCode::kBusy,
      fmt::format("no memory for {} bytes of a request now; the worker's {} bytes (--memory-bytes) are used by: "
                  "{}; retry later",
                  bytes, budget->limit(), budget->Text()));
}

}  // namespace kiln
