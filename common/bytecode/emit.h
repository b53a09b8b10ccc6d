// Emission: the one pass from a Program to its compact form.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "common/bytecode/compact.h"
#include "common/bytecode/program.h"

namespace kiln {

// Nodes [first_node, end_node) of a region that are one segment. `inputs` are the values that enter it at run time,
// `outputs` those that are used after it; both in the segment's canonical order.
struct SegmentRange {
  int function = 0;
  RegionId region = 0;
  int first_node = 0;
  int end_node = 0;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
};

// Whether the node's output sizes are constants that follow from its inputs' descriptions.
using IsStaticNode = std::function<bool(const NodePlace&)>;

// Whether the node's value is made again wherever it is needed (Constant, ShapeVector) and so never crosses a segment's
// border.
bool IsRematerialised(TensorOp op);

// Precondition: the program was verified, ranges do not overlap. Segment i of the result is `segments[i]`. Registers
// are reused after the last use of what they held; every register is free again at RET.
CompactProgram EmitCompact(const Program& program, std::span<const SegmentRange> segments,
                           const IsStaticNode& is_static);

}  // namespace kiln
