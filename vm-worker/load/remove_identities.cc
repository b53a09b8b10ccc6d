#include <algorithm>

#include "vm-worker/load/passes.h"
#include "vm-worker/load/replace_values.h"

namespace kiln {

// An Identity stays where it makes a value that a region must define itself: a region output whose source is a region
// input, comes from outside the region, or is an output already.
Result<bool> RemoveIdentities(Program& program) {
  bool changed = false;
  for (Function& function : program.functions) {
    ValueReplacements replacements(function.values.size());
    bool found = false;
    for (size_t r = 0; r < function.regions.size(); ++r) {
      Region& region = function.regions[r];
      std::vector<bool> is_output(function.values.size());
      std::vector<bool> made_here(function.values.size());
      for (ValueId output : region.outputs) is_output[static_cast<size_t>(output)] = true;
      for (const Node& node : region.nodes) {
        for (ValueId output : node.outputs) {
          if (output != kNoValue) made_here[static_cast<size_t>(output)] = true;
        }
      }
      std::erase_if(region.nodes, [&](const Node& node) {
        if (node.op != TensorOp::kIdentity) return false;
        const ValueId from = replacements.Of(node.inputs[0]);
        const ValueId to = node.outputs[0];
        if (is_output[static_cast<size_t>(to)]) {
          if (!made_here[static_cast<size_t>(from)] || is_output[static_cast<size_t>(from)]) return false;
          is_output[static_cast<size_t>(from)] = true;
          function.values[static_cast<size_t>(from)].name = function.values[static_cast<size_t>(to)].name;
        }
        replacements.Replace(to, from);
        found = true;
        return true;
      });
    }
    if (found) replacements.ApplyTo(function);
    changed = changed || found;
  }
  return changed;
}

}  // namespace kiln
