#include "compile-service/ir/scalar_check.h"

#include "common/base/limits.h"

namespace kiln::ir {
namespace {

int OperandCount(ScalarOp op) {
  switch (op) {
#define KILN_SCALAR_OP(value, name, operands, doc) \
  case ScalarOp::k##name:                          \
    return operands;
#include "compile-service/ir/scalar_ops.def"
#undef KILN_SCALAR_OP
  }
  return -1;
}

bool IsComputeType(DType type) {
  return type == DType::kF32 || type == DType::kF64 || type == DType::kI32 || type == DType::kI64 ||
         type == DType::kBool;
}

Status CheckLoadAt(const ScalarProgram& program, const ScalarNode& node, const Surroundings& around) {
  if (around.nest == nullptr) return InvalidSpec("only loop nests load from positions");
  if (node.index < 0 || static_cast<size_t>(node.index) >= around.accesses->size())
    return InvalidSpec("no such access");
  for (int32_t operand : {node.a, node.b, node.c})
    if (program[static_cast<size_t>(operand)].type != DType::kI64)
      return InvalidSpec("position, extent and stride are i64");
  for (int32_t operand : {node.b, node.c}) {
    const ScalarNode& fixed = program[static_cast<size_t>(operand)];
    if (fixed.op == ScalarOp::kConstant && fixed.integer >= 0 && fixed.integer <= limits::kSpecIntMax) continue;
    if (fixed.op != ScalarOp::kArgument)
      return InvalidSpec("extent and stride are constants of [0, 2^40] or arguments");
  }
  for (const Stage& stage : around.nest->stages) {
    if (stage.kind == Stage::Kind::kScatter && stage.node == &node - program.data()) continue;
    for (const Store& store : stage.stores)
      if (store.access >= 0 && static_cast<size_t>(store.access) < around.accesses->size() &&
          (*around.accesses)[static_cast<size_t>(store.access)].pointer ==
              (*around.accesses)[static_cast<size_t>(node.index)].pointer)
        return InvalidSpec("reads memory that the kernel stores to");
  }
  return {};
}

Status CheckStageResult(const ScalarProgram& program, const ScalarNode& node, const Surroundings& around) {
  if (around.nest == nullptr) return InvalidSpec("only loop nests have stages");
  if (node.index < 0 || static_cast<size_t>(node.index) >= around.nest->stages.size())
    return InvalidSpec("names stage " + std::to_string(node.index));
  const Stage& stage = around.nest->stages[static_cast<size_t>(node.index)];
  if (stage.kind != Stage::Kind::kReduce && stage.kind != Stage::Kind::kScan)
    return InvalidSpec("names a stage that has no result");
  if (stage.node < 0 || static_cast<size_t>(stage.node) >= program.size() ||
      program[static_cast<size_t>(stage.node)].type != node.type)
    return InvalidSpec("has another type than the stage it names");
  return {};
}

Status CheckNode(const ScalarProgram& program, size_t at, const Surroundings& around) {
  const ScalarNode& node = program[at];
  const int operands = OperandCount(node.op);
  if (operands < 0) return InvalidSpec("unknown operation " + std::to_string(static_cast<int>(node.op)));
  if (!IsComputeType(node.type)) return InvalidSpec("type is none of f32, f64, i32, i64, bool");
  const int32_t given[] = {node.a, node.b, node.c};
  for (int k = 0; k < 3; ++k) {
    if (k < operands ? given[k] < 0 || static_cast<size_t>(given[k]) >= at : given[k] != -1)
      return InvalidSpec("operand " + std::to_string(k) + " is " + std::to_string(given[k]) +
                         "; it must be an earlier node, or -1 where there is none");
  }
  auto type_of = [&](int32_t operand) { return program[static_cast<size_t>(operand)].type; };
  auto operands_are = [&](DType type) {
    for (int k = 0; k < operands; ++k)
      if (type_of(given[k]) != type) return false;
    return true;
  };
  auto require = [](bool ok, const char* rule) -> Status {
    if (ok) return {};
    return InvalidSpec(rule);
  };
  switch (node.op) {
    case ScalarOp::kLoad:
      return require(node.index >= 0 && static_cast<size_t>(node.index) < around.accesses->size(), "no such access");
    case ScalarOp::kLoadAt:
      return CheckLoadAt(program, node, around);
    case ScalarOp::kConstant:
      return {};
    case ScalarOp::kStageResult:
      return CheckStageResult(program, node, around);
    case ScalarOp::kAccumulator:
      return require(around.accumulator == node.type && node.index >= 0 && node.index < around.accumulators,
                     "no such sum: only epilogues have them, of type f32, or i32 for sums of bytes");
    case ScalarOp::kCoordinate:
      return require(node.type == DType::kI64 && node.index >= 0 && static_cast<size_t>(node.index) < around.dims,
                     "must be i64 and name a loop dim");
    case ScalarOp::kArgument:
      return require(node.type == DType::kI64 && node.index >= 0 && node.index < around.arguments,
                     "must be i64 and name a dims argument");
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kMul:
    case ScalarOp::kDiv:
    case ScalarOp::kMin:
    case ScalarOp::kMax:
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
      return require(node.type != DType::kBool && operands_are(node.type),
                     "operands and type must be one numeric type");
    case ScalarOp::kFma:
    case ScalarOp::kSqrt:
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kRound:
      return require(IsFloat(node.type) && operands_are(node.type), "operands and type must be one float type");
    case ScalarOp::kRoundF16:
    case ScalarOp::kRoundBF16:
      return require(node.type == DType::kF32 && operands_are(node.type), "operand and type must be f32");
    case ScalarOp::kPow:
    case ScalarOp::kExp:
    case ScalarOp::kLog:
    case ScalarOp::kTanh:
    case ScalarOp::kErf:
    case ScalarOp::kSigmoid:
    case ScalarOp::kSin:
    case ScalarOp::kCos:
      if (node.type == DType::kF64)
        return Fail(ErrorCode::kUnsupported,
                    "elementary functions are generated for f32 only; leave f64 to the interpreter");
      return require(node.type == DType::kF32 && operands_are(node.type), "operands and type must be f32");
    case ScalarOp::kLess:
    case ScalarOp::kLessEqual:
    case ScalarOp::kEqual:
      return require(node.type == DType::kBool && type_of(node.a) == type_of(node.b) &&
                         (type_of(node.a) != DType::kBool || node.op == ScalarOp::kEqual),
                     "type must be bool and both operands of one numeric type");
    case ScalarOp::kAnd:
    case ScalarOp::kOr:
    case ScalarOp::kNot:
      return require(node.type == DType::kBool && operands_are(DType::kBool), "operands and type must be bool");
    case ScalarOp::kIsNaN:
      return require(node.type == DType::kBool && IsFloat(type_of(node.a)),
                     "type must be bool and the operand a float");
    case ScalarOp::kSelect:
      return require(type_of(node.a) == DType::kBool && type_of(node.b) == node.type && type_of(node.c) == node.type,
                     "needs a bool and two operands of its type");
    case ScalarOp::kConvert:
      return {};
  }
  return {};
}

}  // namespace

Status CheckScalarProgram(const ScalarProgram& program, const Surroundings& around) {
  if (program.size() > limits::kSpecNodesMax)
    return InvalidSpec("a scalar program has more than " + std::to_string(limits::kSpecNodesMax) + " nodes");
  for (size_t i = 0; i < program.size(); ++i) {
    if (Status status = CheckNode(program, i, around); !status)
      return FailIn("node " + std::to_string(i) + " (" + std::string(ScalarOpName(program[i].op)) + ")",
                    status.error());
  }
  return {};
}

}  // namespace kiln::ir
