// Einsum's equation, for its shape rule and its kernel.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/ops/list.h"

namespace kiln {

// Labels are letters; the dims of an ellipsis get the labels kEllipsisLabel, kEllipsisLabel + 1, … counted from the
// last.
struct EinsumEquation {
  static constexpr int kEllipsisLabel = 256;
  List<List<int>> inputs;  // labels per dim of each input
  List<int> output;        // labels per dim of the output
};

// Without "->" the output has the ellipsis, then every label that occurs once, in alphabetical order.
Result<EinsumEquation> ParseEinsum(std::string_view equation, const List<int>& ranks);

}  // namespace kiln
