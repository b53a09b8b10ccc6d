#include "vm-worker/onnx/node_order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "schemas/onnx.pb.h"

namespace kiln::onnx {
namespace {

using Visit = std::function<void(const std::string&)>;

void ForEachRead(const NodeProto& node, const Visit& visit);

// What a graph inside a node reads from around it: names that it defines itself are its own.
void ForEachCapture(const GraphProto& graph, const Visit& visit) {
  std::unordered_set<std::string_view> own;
  for (const ValueInfoProto& input : graph.input()) own.insert(input.name());
  for (const TensorProto& tensor : graph.initializer()) own.insert(tensor.name());
  for (const SparseTensorProto& tensor : graph.sparse_initializer()) own.insert(tensor.values().name());
  for (const NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) own.insert(output);
  }
  const Visit captured = [&](const std::string& name) {
    if (!own.contains(name)) visit(name);
  };
  for (const NodeProto& node : graph.node()) ForEachRead(node, captured);
  for (const ValueInfoProto& output : graph.output()) captured(output.name());
}

// Calls `visit` for every name that the node, or a graph inside it, reads from the node's surroundings.
void ForEachRead(const NodeProto& node, const Visit& visit) {
  for (const std::string& input : node.input()) visit(input);
  for (const AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) ForEachCapture(attribute.g(), visit);
  }
}

}  // namespace

Result<std::vector<int>> ExecutionOrder(const google::protobuf::RepeatedPtrField<NodeProto>& nodes) {
  std::unordered_map<std::string_view, int> producer;
  std::vector<bool> overridden(static_cast<size_t>(nodes.size()), false);
  for (int i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i].output()) {
      if (output.empty()) continue;
      const auto [found, inserted] = producer.emplace(output, i);
      if (inserted || nodes[i].op_type() != "Constant" || nodes[found->second].op_type() != "Constant") continue;
      overridden[static_cast<size_t>(found->second)] = true;
      found->second = i;
    }
  }
  std::vector<std::vector<int>> readers(static_cast<size_t>(nodes.size()));
  std::vector<int> missing(static_cast<size_t>(nodes.size()), 0);
  for (int i = 0; i < nodes.size(); ++i) {
    ForEachRead(nodes[i], [&](const std::string& name) {
      const auto found = producer.find(name);
      if (found == producer.end()) return;
      readers[static_cast<size_t>(found->second)].push_back(i);
      ++missing[static_cast<size_t>(i)];
    });
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < nodes.size(); ++i) {
    if (missing[static_cast<size_t>(i)] == 0 && !overridden[static_cast<size_t>(i)]) ready.push(i);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int next = ready.top();
    ready.pop();
    order.push_back(next);
    for (int reader : readers[static_cast<size_t>(next)]) {
      if (--missing[static_cast<size_t>(reader)] == 0) ready.push(reader);
    }
  }
  for (int i = 0; i < nodes.size(); ++i) {
    if (missing[static_cast<size_t>(i)] > 0) {
      return Fail(ErrorCode::kMalformed, "node '" + nodes[i].name() + "' (" + nodes[i].op_type() +
                                             ") reads its own output, directly or through other nodes");
    }
  }
  return order;
}

NameSet NeededNames(const google::protobuf::RepeatedPtrField<NodeProto>& nodes, std::span<const int> order,
                    NameSet outputs) {
  NameSet needed = std::move(outputs);
  for (size_t i = order.size(); i-- > 0;) {
    const NodeProto& node = nodes[order[i]];
    if (MakesAny(node, needed)) ForEachRead(node, [&](const std::string& name) { needed.insert(name); });
  }
  return needed;
}

bool MakesAny(const NodeProto& node, const NameSet& names) {
  return std::ranges::any_of(node.output(),
                             [&](const std::string& name) { return !name.empty() && names.contains(name); });
}

}  // namespace kiln::onnx
