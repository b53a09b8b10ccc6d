#include "compile-service/ir/scalar_check.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/limits.h"

namespace kiln::ir {
namespace {

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

Status CheckOperands(const ScalarNode& node, size_t at, int operands) {
  const int32_t given[] = {node.a, node.b, node.c};
  for (int k = 0; k < 3; ++k) {
    if (k < operands ? given[k] < 0 || static_cast<size_t>(given[k]) >= at : given[k] != -1)
      return InvalidSpec("operand " + std::to_string(k) + " is " + std::to_string(given[k]) +
                         "; it must be an earlier node, or -1 where there is none");
  }
  return {};
}

Status Require(bool ok, const char* rule) {
  if (ok) return {};
  return InvalidSpec(rule);
}

// Operands are earlier nodes, as many as the operation takes.
Status CheckFormat(ScalarFormat format, const ScalarProgram& program, const ScalarNode& node,
                   const Surroundings& around) {
  const DType type = node.type;
  const auto type_of = [&](int32_t operand) { return program[static_cast<size_t>(operand)].type; };
  const auto operands_are = [&](DType wanted) {
    return std::ranges::all_of(std::array{node.a, node.b, node.c},
                               [&](int32_t operand) { return operand < 0 || type_of(operand) == wanted; });
  };
  const auto names_one_of = [&](auto count) { return node.index >= 0 && std::cmp_less(node.index, count); };
  switch (format) {
    case ScalarFormat::kConstant:
    case ScalarFormat::kConversion:
      return {};
    case ScalarFormat::kAccess:
      return Require(names_one_of(around.accesses->size()), "no such access");
    case ScalarFormat::kPosition:
      return CheckLoadAt(program, node, around);
    case ScalarFormat::kStage:
      return CheckStageResult(program, node, around);
    case ScalarFormat::kSum:
      return Require(around.accumulator == type && names_one_of(around.accumulators),
                     "no such sum: only epilogues have them, of type f32, or i32 for sums of bytes");
    case ScalarFormat::kDim:
      return Require(type == DType::kI64 && names_one_of(around.dims), "must be i64 and name a loop dim");
    case ScalarFormat::kArgument:
      return Require(type == DType::kI64 && names_one_of(around.arguments), "must be i64 and name a dims argument");
    case ScalarFormat::kNumbers:
      return Require(type != DType::kBool && operands_are(type), "operands and type must be one numeric type");
    case ScalarFormat::kFloats:
      return Require(IsFloat(type) && operands_are(type), "operands and type must be one float type");
    case ScalarFormat::kFunction:
      if (type == DType::kF64)
        return Fail(ErrorCode::kUnsupported,
                    "elementary functions are generated for f32 only; leave f64 to the interpreter");
      [[fallthrough]];
    case ScalarFormat::kF32:
      return Require(type == DType::kF32 && operands_are(type), "operands and type must be f32");
    case ScalarFormat::kOrder:
      return Require(type == DType::kBool && type_of(node.a) != type && operands_are(type_of(node.a)),
                     "type must be bool and both operands of one numeric type");
    case ScalarFormat::kEquality:
      return Require(type == DType::kBool && operands_are(type_of(node.a)),
                     "type must be bool and both operands of one type");
    case ScalarFormat::kTruths:
      return Require(type == DType::kBool && operands_are(type), "operands and type must be bool");
    case ScalarFormat::kFloatTest:
      return Require(type == DType::kBool && IsFloat(type_of(node.a)), "type must be bool and the operand a float");
    case ScalarFormat::kChoice:
      return Require(type_of(node.a) == DType::kBool && type_of(node.b) == type && type_of(node.c) == type,
                     "needs a bool and two operands of its type");
  }
  return {};
}

Status CheckNode(const ScalarProgram& program, size_t at, const Surroundings& around) {
  const ScalarNode& node = program[at];
  const ScalarOpInfo* info = FindScalarOp(node.op);
  if (info == nullptr) return InvalidSpec("unknown operation " + std::to_string(static_cast<int>(node.op)));
  if (!IsComputeType(node.type)) return InvalidSpec("type is none of f32, f64, i32, i64, bool");
  RETURN_IF_ERROR(CheckOperands(node, at, info->operands));
  return CheckFormat(info->format, program, node, around);
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
