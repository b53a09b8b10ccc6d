// Redirecting uses of values, for passes that remove definitions.
#pragma once

#include <numeric>
#include <vector>

#include "common/bytecode/program.h"

namespace kiln {

// `replacement[v]` is what to read instead of v (v itself: unchanged); chains are followed.
class ValueReplacements {
 public:
  explicit ValueReplacements(size_t values) : to_(values) { std::iota(to_.begin(), to_.end(), 0); }
  void Replace(ValueId from, ValueId to) { to_[static_cast<size_t>(from)] = to; }
  ValueId Of(ValueId value) const {
    while (value != kNoValue && to_[static_cast<size_t>(value)] != value) value = to_[static_cast<size_t>(value)];
    return value;
  }
  void ApplyTo(std::vector<ValueId>& values) const {
    for (ValueId& value : values) value = Of(value);
  }
  // Node inputs and region outputs of the whole function.
  void ApplyTo(Function& function) const {
    for (Region& region : function.regions) {
      for (Node& node : region.nodes) ApplyTo(node.inputs);
      ApplyTo(region.outputs);
    }
  }

 private:
  std::vector<ValueId> to_;
};

}  // namespace kiln
