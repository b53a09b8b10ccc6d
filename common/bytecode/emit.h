// Emission: the one pass from a Program to its compact form.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "common/bytecode/compact.h"
#include "common/bytecode/program.h"
#include "common/bytecode/symbol_definitions.h"

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

// What was found out about the program's nodes and values before emission.
struct ShapeFacts {
  // Whether the node's output sizes are constants that follow from its inputs' descriptions.
  std::function<bool(const NodePlace&)> is_static;
  // Whether the sizes that the program states for a value of the function, a node's output, have to be checked when it
  // runs: the node's shape rule does not prove them.
  std::function<bool(int function, ValueId value)> is_unproven;
};

// Whether the node's value is made again wherever it is needed (Constant, ShapeVector) and so never crosses a segment's
// border.
bool IsRematerialised(TensorOp op);

// Precondition: the program was verified, ranges do not overlap. Segment i of the result is `segments[i]`. Registers
// are reused after the last use of what they held; every register is free again at RET.
CompactProgram EmitCompact(const Program& program, const SymbolDefinitions& definitions,
                           std::span<const SegmentRange> segments, const ShapeFacts& facts);

}  // namespace kiln
