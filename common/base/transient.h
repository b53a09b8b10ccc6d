// Which errors say nothing about the thing that was asked for: the one list of them.
#pragma once

#include "common/base/result.h"

namespace kiln {

// The same call may succeed later, with nothing changed but the time: a peer that is away, slow or busy, memory or room
// that is not there now. Everything else is an answer.
bool IsTransient(ErrorCode code);

}  // namespace kiln
