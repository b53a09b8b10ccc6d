// RunReport: how a contained run ended, told by the child in shared memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/base/result.h"

namespace kiln {

// The code that runs in the child may write here as well: any bytes at all may stand in it, and no more than its own
// size is there to be read.
struct RunReport {
  uint8_t failed;
  uint8_t code;
  char text[1022];

  void Write(const Error& error) {
    failed = 1;
    code = static_cast<uint8_t>(error.code);
    std::memcpy(text, error.message.data(), std::min(error.message.size(), sizeof(text)));
  }
  // For the parent, once the child has ended. Codes that are none are Internal.
  Status Read() const {
    if (failed == 0) return {};
    return Fail(ErrorCodeFromWire(code), std::string(text, strnlen(text, sizeof(text))));
  }
};

}  // namespace kiln
