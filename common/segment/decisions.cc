#include "common/segment/decisions.h"

#include "common/ops/jumps.h"

namespace kiln {
namespace {

// Ops that give their inputs' elements back unchanged.
bool OnlyMovesElements(const Node& node, const TensorOpInfo& info) {
  switch (info.family) {
    case OpFamily::kView:
    case OpFamily::kConstant:
      return true;
    case OpFamily::kIndexing:
      return node.attributes.Text("reduction", "none") == "none";
    case OpFamily::kShape:
      return info.op != TensorOp::kRange;
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

// Whether an output jumps, given which inputs are results of float arithmetic.
bool MayJump(TensorOp op, size_t output, bool inexact_input, bool inexact_position) {
  switch (JumpsOf(op)) {
    case OpJumps::kNowhere:
      return false;
    case OpJumps::kEverywhere:
      return inexact_input;
    case OpJumps::kIndices:
      return inexact_input && output == 1;
    case OpJumps::kPositions:
      return inexact_position;
  }
  return true;
}

}  // namespace

std::vector<bool> OutputsBehindDecisions(const Segment& segment) {
  const Function& body = segment.body.entry();
  std::vector<bool> inexact(body.values.size()), decided(body.values.size());
  for (const Node& node : body.regions[0].nodes) {
    const TensorOpInfo& info = OpInfo(node.op);
    bool inexact_input = false, inexact_position = false, decided_input = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      const auto input = static_cast<size_t>(node.inputs[i]);
      inexact_input |= inexact[input];
      inexact_position |= i > 0 && inexact[input];
      decided_input |= decided[input];
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] == kNoValue) continue;
      const auto index = static_cast<size_t>(node.outputs[o]);
      const bool is_float = IsFloat(body.values[index].desc.dtype);
      decided[index] = decided_input || MayJump(node.op, o, inexact_input, inexact_position);
      inexact[index] = is_float && (inexact_input || !OnlyMovesElements(node, info));
    }
  }
  std::vector<bool> outputs;
  for (ValueId output : body.regions[0].outputs) outputs.push_back(decided[static_cast<size_t>(output)]);
  return outputs;
}

}  // namespace kiln
