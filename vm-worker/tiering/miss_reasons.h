// Why calls of a segment are interpreted, and the ledger of what that costs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/result.h"

namespace kiln {

enum class MissReason : uint8_t {
#define KILN_MISS(value, name, text, doc) k##name = value,
#include "vm-worker/tiering/miss_reasons.def"
#undef KILN_MISS
};
// Values count from 1; index 0 of a table by reason is unused.
inline constexpr size_t kMissReasons = 1
#define KILN_MISS(value, name, text, doc) +1
#include "vm-worker/tiering/miss_reasons.def"
#undef KILN_MISS
    ;
#define KILN_MISS(value, name, text, doc) static_assert(value >= 1 && value < kMissReasons);
#include "vm-worker/tiering/miss_reasons.def"
#undef KILN_MISS
std::string_view MissReasonText(MissReason reason);
// Of a segment whose plan could not be had: what a failure of the services says about the calls that are interpreted.
MissReason ReasonOf(ErrorCode code);

// Interpreted calls by MissReason, and the interpreter's time in them.
struct MissLedger {
  std::array<uint64_t, kMissReasons> calls{}, ns{};
  void Add(MissReason reason, uint64_t more_calls, uint64_t more_ns);
};

}  // namespace kiln
