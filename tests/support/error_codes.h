// Every error code, for tests that must hold for each.
#pragma once

#include "common/base/result.h"

namespace kiln::testing {

inline constexpr ErrorCode kErrorCodes[] = {
#define KILN_ERROR(value, name, doc, exit_status) ErrorCode::k##name,
#include "common/base/error_codes.def"
#undef KILN_ERROR
};

}  // namespace kiln::testing
