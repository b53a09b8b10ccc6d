// How a server takes a request; a column of the services' method tables.
#pragma once

#include <cstdint>

namespace kiln {

// kImmediate: the handler answers before it returns. Such a request needs no slot: it is taken however many others
// wait.
enum class Admission : uint8_t { kQueued, kImmediate };

}  // namespace kiln
