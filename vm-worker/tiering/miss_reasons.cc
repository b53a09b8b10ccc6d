#include "vm-worker/tiering/miss_reasons.h"

#include "common/base/transient.h"

namespace kiln {

std::string_view MissReasonText(MissReason reason) {
  switch (reason) {
#define KILN_MISS(value, name, text, doc) \
  case MissReason::k##name:               \
    return text;
#include "vm-worker/tiering/miss_reasons.def"
#undef KILN_MISS
  }
  return "unknown";
}

MissReason ReasonOf(ErrorCode code) {
  if (IsTransient(code)) return MissReason::kNoService;
  return code == ErrorCode::kQuarantined ? MissReason::kQuarantined : MissReason::kCompileFailed;
}

void MissLedger::Add(MissReason reason, uint64_t more_calls, uint64_t more_ns) {
  calls[static_cast<size_t>(reason)] += more_calls;
  ns[static_cast<size_t>(reason)] += more_ns;
}

}  // namespace kiln
