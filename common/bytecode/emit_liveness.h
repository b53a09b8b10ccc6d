// Where each value of a function is defined and last used.
#pragma once

#include <vector>

#include "common/bytecode/program.h"

namespace kiln {

struct Liveness {
  static constexpr int kUnused = -1;
  static constexpr int kRegionOutput = 0x7fffffff;  // lives to the end of its region
  struct Definition {
    RegionId region = 0;
    int node = -1;  // -1: an input of the region
  };
  std::vector<Definition> definition;  // per value
  std::vector<int> last_use;           // per value: node of the defining region, kUnused or kRegionOutput
  // [region][node]: values defined in the region whose last use is that node or lies in a region of it.
  std::vector<std::vector<std::vector<ValueId>>> dying;
};

// Precondition: the function belongs to a verified program.
Liveness FindLiveness(const Function& function);

}  // namespace kiln
