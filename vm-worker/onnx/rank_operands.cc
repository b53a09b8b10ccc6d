#include "vm-worker/onnx/rank_operands.h"

#include <string_view>
#include <unordered_map>

#include "schemas/onnx.pb.h"

namespace kiln::onnx {
namespace {

// First input that counts; all after it count as well.
const std::unordered_map<std::string_view, int>& FirstRankOperand() {
  static const std::unordered_map<std::string_view, int> table = {
      {"Reshape", 1},      {"Expand", 1},          {"ConstantOfShape", 0},
      {"Squeeze", 1},      {"Unsqueeze", 1},       {"Tile", 1},
      {"Pad", 1},          {"Resize", 1},          {"Upsample", 1},
      {"Slice", 1},        {"Split", 1},           {"CenterCropPad", 1},
      {"AffineGrid", 1},   {"Col2Im", 1},          {"GatherND", 1},
      {"ScatterND", 1},    {"ReduceSum", 1},       {"ReduceMean", 1},
      {"ReduceMax", 1},    {"ReduceMin", 1},       {"ReduceProd", 1},
      {"ReduceL1", 1},     {"ReduceL2", 1},        {"ReduceSumSquare", 1},
      {"ReduceLogSum", 1}, {"ReduceLogSumExp", 1}, {"MaxUnpool", 2},
  };
  return table;
}

// ScatterND's updates (input 2) are data.
int LastRankOperand(std::string_view op_type, int inputs) {
  return op_type == "ScatterND" || op_type == "GatherND" ? 1 : inputs - 1;
}

}  // namespace

std::set<std::string> FindRankOperands(const GraphProto& graph) {
  std::set<std::string> names;
  for (const NodeProto& node : graph.node()) {
    if (const auto first = FirstRankOperand().find(node.op_type()); first != FirstRankOperand().end()) {
      for (int i = first->second; i <= LastRankOperand(node.op_type(), node.input_size()) && i < node.input_size();
           ++i) {
        names.insert(node.input(i));
      }
    }
    for (const AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) names.merge(FindRankOperands(attribute.g()));
    }
  }
  return names;
}

}  // namespace kiln::onnx
