// How much memory the tensors of one run can take, from the intervals of the program's symbols.
#pragma once

#include <optional>
#include <string>

#include "common/bytecode/program.h"

namespace kiln {

struct MemoryBound {
  // Bytes that are alive at once, constants and kernels' scratch apart: every value counts from its node to its last
  // reader, a view as if it were copied. nullopt: the intervals give none.
  std::optional<int64_t> bytes;
  // Where there is no bound: the value, and the symbol without an upper bound if that is why.
  std::string reason;
};

// Precondition: `program` is verified. What a program without functions calls is bounded by 0.
MemoryBound BoundMemory(const Program& program);

}  // namespace kiln
