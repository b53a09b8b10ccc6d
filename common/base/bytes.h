// Owned raw bytes: what is encoded, stored, signed and sent.
#pragma once

#include <cstdint>
#include <vector>

namespace kiln {

using Bytes = std::vector<uint8_t>;

}  // namespace kiln
