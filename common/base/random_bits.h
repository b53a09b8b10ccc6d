// Randomness as an injected dependency. Production code draws from a RandomBits; tests give it what they like.
#pragma once

#include <cstdint>
#include <functional>

namespace kiln {

// 64 bits a call. Thread-safe.
using RandomBits = std::function<uint64_t()>;

// The system's: nobody outside can tell the next ones.
uint64_t SystemRandomBits();

}  // namespace kiln
