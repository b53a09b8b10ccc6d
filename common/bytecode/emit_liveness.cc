#include "common/bytecode/emit_liveness.h"

#include <algorithm>

namespace kiln {
namespace {

class Walk {
 public:
  explicit Walk(const Function& function) : function_(function) {
    live_.definition.resize(function.values.size());
    live_.last_use.assign(function.values.size(), Liveness::kUnused);
    live_.dying.resize(function.regions.size());
  }

  Liveness Run() {
    Region(0);
    for (size_t v = 0; v < function_.values.size(); ++v) {
      const int last = live_.last_use[v];
      if (last == Liveness::kUnused || last == Liveness::kRegionOutput) continue;
      live_.dying[static_cast<size_t>(live_.definition[v].region)][static_cast<size_t>(last)].push_back(
          static_cast<ValueId>(v));
    }
    return std::move(live_);
  }

 private:
  struct Place {
    RegionId region;
    int node;
  };

  void Region(RegionId id) {
    const kiln::Region& region = function_.regions[static_cast<size_t>(id)];
    live_.dying[static_cast<size_t>(id)].resize(region.nodes.size());
    path_.push_back({id, -1});
    for (ValueId input : region.inputs) live_.definition[static_cast<size_t>(input)] = {id, -1};
    for (size_t i = 0; i < region.nodes.size(); ++i) {
      const Node& node = region.nodes[i];
      path_.back().node = static_cast<int>(i);
      for (ValueId input : node.inputs) Use(input);
      for (RegionId nested : node.regions) Region(nested);
      for (ValueId output : node.outputs)
        if (output != kNoValue) live_.definition[static_cast<size_t>(output)] = {id, static_cast<int>(i)};
    }
    path_.back().node = Liveness::kRegionOutput;
    for (ValueId output : region.outputs) Use(output);
    path_.pop_back();
  }

  void Use(ValueId value) {
    if (value == kNoValue) return;
    const RegionId home = live_.definition[static_cast<size_t>(value)].region;
    for (auto place = path_.rbegin(); place != path_.rend(); ++place) {
      if (place->region != home) continue;
      int& last = live_.last_use[static_cast<size_t>(value)];
      last = std::max(last, place->node);
      return;
    }
  }

  const Function& function_;
  Liveness live_;
  std::vector<Place> path_;
};

}  // namespace

Liveness FindLiveness(const Function& function) {
  return Walk(function).Run();
}

}  // namespace kiln
