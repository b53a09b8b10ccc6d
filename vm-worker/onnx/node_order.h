// Execution order of a graph's nodes. The format asks for one; some writers do not keep it.
#pragma once

#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "common/base/result.h"

namespace google::protobuf {
template <class T>
class RepeatedPtrField;
}

namespace kiln::onnx {

class NodeProto;

// Indices of `nodes` so that each comes after the nodes whose outputs it, or a graph in its attributes, reads; the
// given order where it allows that. Of several Constant nodes that define one name the last counts, as other runtimes
// have it; the others are left out. Malformed names a node on a cycle.
Result<std::vector<int>> ExecutionOrder(const google::protobuf::RepeatedPtrField<NodeProto>& nodes);

using NameSet = std::unordered_set<std::string>;

// `outputs`, and what the nodes that lead to them read, graphs in their attributes included. Precondition: `order` is
// the nodes' ExecutionOrder.
NameSet NeededNames(const google::protobuf::RepeatedPtrField<NodeProto>& nodes, std::span<const int> order,
                    NameSet outputs);
// Whether the node makes one of the names.
bool MakesAny(const NodeProto& node, const NameSet& names);

}  // namespace kiln::onnx
