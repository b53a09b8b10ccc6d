// The segments that requests enter, with the symbol values of the entries.
#pragma once

#include <memory>
#include <vector>

#include "bench/models/requests.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::bench {

struct EnteredSegment {
  int segment = 0;              // index into LoadedProgram::segments()
  std::vector<int64_t> values;  // per symbol; -1 where no input shows one
};

// In order of the first entry; each segment with each of its different values once.
Result<std::vector<EnteredSegment>> SegmentsOf(const LoadedProgram& program, const std::vector<Request>& requests);

}  // namespace kiln::bench
