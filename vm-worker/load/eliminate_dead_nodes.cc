#include "vm-worker/load/passes.h"

namespace kiln {
namespace {

// Marks from the outputs backwards; a node's regions count as its readers.
class Marker {
 public:
  explicit Marker(const Function& function) : function_(function), live_(function.values.size()) {}

  // Returns whether a node in the region, or inside it, is dead.
  bool SweepRegion(Function& function, RegionId id) {
    Region& region = function.regions[static_cast<size_t>(id)];
    std::vector<Node> kept;
    bool changed = false;
    for (ValueId output : region.outputs) Mark(output);
    for (size_t i = region.nodes.size(); i-- > 0;) {
      Node& node = region.nodes[i];
      if (!IsLive(node)) {
        changed = true;
        continue;
      }
      for (ValueId input : node.inputs) Mark(input);
      for (RegionId inner : node.regions) changed |= SweepRegion(function, inner);
      kept.push_back(std::move(function.regions[static_cast<size_t>(id)].nodes[i]));
    }
    std::vector<Node>& nodes = function.regions[static_cast<size_t>(id)].nodes;
    nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
    return changed;
  }

 private:
  void Mark(ValueId value) {
    if (value != kNoValue) live_[static_cast<size_t>(value)] = true;
  }
  bool IsLive(const Node& node) const {
    for (ValueId output : node.outputs) {
      if (output != kNoValue && live_[static_cast<size_t>(output)]) return true;
    }
    return false;
  }

  const Function& function_;
  std::vector<bool> live_;
};

}  // namespace

Result<bool> EliminateDeadNodes(Program& program) {
  bool changed = false;
  for (Function& function : program.functions) changed |= Marker(function).SweepRegion(function, 0);
  return changed;
}

}  // namespace kiln
