#include "compile-service/validate/decisions.h"

namespace kiln {

using ir::ScalarNode;
using ir::ScalarOp;

Decisions FindDecisions(const ir::ScalarProgram& program, const ReadsInexact& load, const ReadsInexact& result) {
  Decisions found{std::vector<bool>(program.size(), false), std::vector<bool>(program.size(), false)};
  const auto inexact = [&](int32_t node) { return node >= 0 && found.inexact[static_cast<size_t>(node)]; };
  for (size_t i = 0; i < program.size(); ++i) {
    const ScalarNode& node = program[i];
    const bool any = inexact(node.a) || inexact(node.b) || inexact(node.c);
    bool made = false, decides = false;
    switch (node.op) {
      case ScalarOp::kConstant:
      case ScalarOp::kCoordinate:
      case ScalarOp::kArgument:
      case ScalarOp::kAnd:
      case ScalarOp::kOr:
      case ScalarOp::kNot:
      case ScalarOp::kIsNaN:
        break;
      case ScalarOp::kLoad:
      case ScalarOp::kLoadAt:  // positions come from memory, and floats become integers by a conversion that leans
        made = load(node.index, found.inexact);
        break;
      case ScalarOp::kStageResult:
      case ScalarOp::kAccumulator:
        made = result(node.index, found.inexact);
        break;
      case ScalarOp::kAdd:
      case ScalarOp::kSub:
      case ScalarOp::kMul:
      case ScalarOp::kDiv:
      case ScalarOp::kPow:
      case ScalarOp::kFma:
      case ScalarOp::kSqrt:
      case ScalarOp::kExp:
      case ScalarOp::kLog:
      case ScalarOp::kTanh:
      case ScalarOp::kErf:
      case ScalarOp::kSigmoid:
      case ScalarOp::kSin:
      case ScalarOp::kCos:
        made = true;
        break;
      case ScalarOp::kMin:
      case ScalarOp::kMax:
      case ScalarOp::kNeg:
      case ScalarOp::kAbs:
      case ScalarOp::kSelect:
        made = any;
        break;
      case ScalarOp::kFloor:
      case ScalarOp::kCeil:
      case ScalarOp::kRound:
      case ScalarOp::kLess:
      case ScalarOp::kLessEqual:
      case ScalarOp::kEqual:
      case ScalarOp::kRoundF16:
      case ScalarOp::kRoundBF16:
        decides = any;
        break;
      case ScalarOp::kConvert:
        made = any;
        decides = any && !IsFloat(node.type);
        break;
    }
    found.inexact[i] = made && !decides && IsFloat(node.type);
    found.leans[i] = decides;
  }
  return found;
}

std::vector<bool> ReadsOfWritten(const std::vector<ir::Access>& accesses, const std::vector<ir::Store>& stores) {
  std::vector<bool> reads(accesses.size(), false);
  for (const ir::Store& store : stores)
    for (size_t i = 0; i < accesses.size(); ++i)
      if (accesses[i].pointer == accesses[static_cast<size_t>(store.access)].pointer && IsFloat(accesses[i].storage))
        reads[i] = true;
  return reads;
}

}  // namespace kiln
