#include "common/segment/decisions.h"

namespace kiln {
namespace {

// Ops that give their inputs' elements back unchanged.
bool OnlyMovesElements(const TensorOpInfo& info) {
  switch (info.family) {
    case OpFamily::kView:
    case OpFamily::kIndexing:
    case OpFamily::kConstant:
    case OpFamily::kShape:
      return true;
    case OpFamily::kMovement:
      return info.op != TensorOp::kResize && info.op != TensorOp::kCumSum && info.op != TensorOp::kCumProd;
    case OpFamily::kElementwise:
    case OpFamily::kReduction:
    case OpFamily::kContraction:
    case OpFamily::kConvolution:
    case OpFamily::kPooling:
    case OpFamily::kNormalization:
    case OpFamily::kRecurrent:
    case OpFamily::kSelection:
    case OpFamily::kQuantization:
    case OpFamily::kControl:
    case OpFamily::kOther:
      return info.op == TensorOp::kWhere;
  }
  return false;
}

}  // namespace

std::vector<bool> OutputsBehindDecisions(const Segment& segment) {
  const Function& body = segment.body.entry();
  std::vector<bool> inexact(body.values.size()), decided(body.values.size());
  for (const Node& node : body.regions[0].nodes) {
    const TensorOpInfo& info = OpInfo(node.op);
    bool inexact_input = false, decided_input = false;
    for (ValueId input : node.inputs) {
      if (input == kNoValue) continue;
      inexact_input |= inexact[static_cast<size_t>(input)];
      decided_input |= decided[static_cast<size_t>(input)];
    }
    for (ValueId output : node.outputs) {
      if (output == kNoValue) continue;
      const auto index = static_cast<size_t>(output);
      const bool is_float = IsFloat(body.values[index].desc.dtype);
      decided[index] = decided_input || (info.effects == OpEffects::kDecision && inexact_input);
      inexact[index] = is_float && (inexact_input || !OnlyMovesElements(info));
    }
  }
  std::vector<bool> outputs;
  for (ValueId output : body.regions[0].outputs) outputs.push_back(decided[static_cast<size_t>(output)]);
  return outputs;
}

}  // namespace kiln
