// Inputs whose length determines a rank (or a number of outputs) elsewhere in the graph.
#pragma once

#include <set>
#include <string>

namespace kiln::onnx {

class GraphProto;

// Names of values, read anywhere in `graph` or the graphs inside it, whose last dim must stay constant for ranks to be
// known: Reshape shapes, axes lists, pads, index tuples…
std::set<std::string> FindRankOperands(const GraphProto& graph);

}  // namespace kiln::onnx
