// Pads that repeat elements of their input.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compile-service/ir/graph.h"

namespace kiln::passes {

enum class PadSource : uint8_t {
  kReflect,  // backwards from the edge, without it
  kEdge,
  kWrap,  // from the other end
};

// One padded dim.
struct PadAxis {
  size_t axis = 0;
  Dim dim;  // of the input
  int64_t before = 0, after = 0;
  int64_t least = 0;  // elements that the dim must have, or the op is an error (kWrap: or repeats more than once)
};

// Of a Pad in mode reflect, edge or wrap with constant pads that take nothing away; empty for every other node.
std::vector<PadAxis> PadAxes(const ir::Graph& graph, const ir::GraphNode& node, PadSource* source = nullptr);

// The dim of a Pad that repeats one dim of its input from the other end, as often as it takes: what RepeatedPads leaves
// of mode wrap where the pads may be longer than the dim. Of at least one element wherever the plan is valid.
std::optional<PadAxis> WrappedAxis(const ir::Graph& graph, const ir::GraphNode& node);

}  // namespace kiln::passes
