// Where a kernel's buffer differs from the reference's, and which of these differences a decision that may fall either
// way explains (decisions.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "compile-service/validate/pointer_extents.h"

namespace kiln {

struct Difference {
  int64_t element;
  double low, high;  // what the reference gives, as decisions fall
  bool met = false;  // one of the ways gives the kernel's value
};

// Elements beyond the tolerance of their type; integers are equal or different.
std::vector<Difference> FindDifferences(const PointerExtent& extent, const void* expected, const void* actual);

// Takes in another way that the reference may go.
void Widen(const PointerExtent& extent, const void* leant, const void* actual, std::vector<Difference>& differences);

// CompileFailed, naming the first element that no way explains: integers lie among what the ways give; floats within
// as much again, because the ways tried are some of many, and within the tolerance.
Status Judge(const PointerExtent& extent, const void* expected, const void* actual,
             const std::vector<Difference>& differences, const std::string& where);

}  // namespace kiln
