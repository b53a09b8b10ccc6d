#include "compile-service/codegen/llvm/scalar_emitter.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include "compile-service/codegen/llvm/math.h"
#include "compile-service/ir/nest_stages.h"

namespace kiln::codegen {

using ir::ScalarNode;
using ir::ScalarOp;
using llvm::Value;

namespace {

Value* EmitConstant(VectorEmitter& e, const ScalarNode& node) {
  llvm::Type* type = e.VectorType(node.type);
  if (IsFloat(node.type)) return llvm::ConstantFP::get(type, node.number);
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(node.integer), true);
}

// Truncating; a zero divisor gives 0, and the one overflowing quotient wraps.
Value* EmitIntegerDiv(VectorEmitter& e, DType type, Value* a, Value* b) {
  auto& ir = e.ir();
  Value* zero = e.Zero(type);
  Value* minus_one = llvm::Constant::getAllOnesValue(e.VectorType(type));
  if (auto* constant = llvm::dyn_cast<llvm::Constant>(b); constant && constant->getSplatValue()) {
    if (constant->isNullValue()) return zero;
    return constant->isAllOnesValue() ? ir.CreateNeg(a) : ir.CreateSDiv(a, b);
  }
  Value* is_zero = ir.CreateICmpEQ(b, zero);
  Value* is_minus_one = ir.CreateICmpEQ(b, minus_one);
  Value* safe = ir.CreateSelect(ir.CreateOr(is_zero, is_minus_one), llvm::ConstantInt::get(e.VectorType(type), 1), b);
  Value* quotient = ir.CreateSelect(is_minus_one, ir.CreateNeg(a), ir.CreateSDiv(a, safe));
  return ir.CreateSelect(is_zero, zero, quotient);
}

// One rounding. Without the instruction an f32 product is exact in f64; f64 itself rounds twice there.
Value* EmitFma(VectorEmitter& e, DType type, Value* a, Value* b, Value* c) {
  auto& ir = e.ir();
  if (!IsFloat(type)) return ir.CreateAdd(ir.CreateMul(a, b), c);
  if (e.has_fma() || type == DType::kF64) return e.MulAdd(a, b, c);
  auto wide = [&](Value* value) { return ir.CreateFPExt(value, e.VectorType(DType::kF64)); };
  return ir.CreateFPTrunc(ir.CreateFAdd(ir.CreateFMul(wide(a), wide(b)), wide(c)), e.VectorType(type));
}

}  // namespace

Value* EmitScalarOp(VectorEmitter& e, const ScalarNode& node, DType operand, Value* a, Value* b, Value* c) {
  auto& ir = e.ir();
  const bool is_float = IsFloat(operand);
  switch (node.op) {
    case ScalarOp::kLoad:
    case ScalarOp::kStageResult:
    case ScalarOp::kAccumulator:
    case ScalarOp::kCoordinate:
    case ScalarOp::kArgument:
    case ScalarOp::kLoadAt:
      return nullptr;
    case ScalarOp::kConstant:
      return EmitConstant(e, node);
    case ScalarOp::kAdd:
      return is_float ? ir.CreateFAdd(a, b) : ir.CreateAdd(a, b);
    case ScalarOp::kSub:
      return is_float ? ir.CreateFSub(a, b) : ir.CreateSub(a, b);
    case ScalarOp::kMul:
      return is_float ? ir.CreateFMul(a, b) : ir.CreateMul(a, b);
    case ScalarOp::kDiv:
      return is_float ? ir.CreateFDiv(a, b) : EmitIntegerDiv(e, operand, a, b);
    case ScalarOp::kMin:
      return e.Minimum(a, b, operand);
    case ScalarOp::kMax:
      return e.Maximum(a, b, operand);
    case ScalarOp::kPow:
      return EmitPow(e, a, b);
    case ScalarOp::kFma:
      return EmitFma(e, operand, a, b, c);
    case ScalarOp::kNeg:
      return is_float ? ir.CreateFNeg(a) : ir.CreateNeg(a);
    case ScalarOp::kAbs:
      if (is_float) return ir.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
      return ir.CreateSelect(ir.CreateICmpSLT(a, e.Zero(operand)), ir.CreateNeg(a), a);
    case ScalarOp::kSqrt:
      return ir.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
    case ScalarOp::kExp:
      return EmitExp(e, a);
    case ScalarOp::kLog:
      return EmitLog(e, a);
    case ScalarOp::kTanh:
      return EmitTanh(e, a);
    case ScalarOp::kErf:
      return EmitErf(e, a);
    case ScalarOp::kSigmoid:
      return EmitSigmoid(e, a);
    case ScalarOp::kSin:
      return EmitSin(e, a);
    case ScalarOp::kCos:
      return EmitCos(e, a);
    case ScalarOp::kFloor:
      return ir.CreateUnaryIntrinsic(llvm::Intrinsic::floor, a);
    case ScalarOp::kCeil:
      return ir.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, a);
    case ScalarOp::kRound:
      return ir.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, a);
    case ScalarOp::kLess:
      return is_float ? ir.CreateFCmpOLT(a, b) : ir.CreateICmpSLT(a, b);
    case ScalarOp::kLessEqual:
      return is_float ? ir.CreateFCmpOLE(a, b) : ir.CreateICmpSLE(a, b);
    case ScalarOp::kEqual:
      return is_float ? ir.CreateFCmpOEQ(a, b) : ir.CreateICmpEQ(a, b);
    case ScalarOp::kAnd:
      return ir.CreateAnd(a, b);
    case ScalarOp::kOr:
      return ir.CreateOr(a, b);
    case ScalarOp::kNot:
      return ir.CreateNot(a);
    case ScalarOp::kIsNaN:
      return ir.CreateFCmpUNO(a, a);
    case ScalarOp::kSelect:
      return ir.CreateSelect(a, b, c);
    case ScalarOp::kConvert:
      return e.Convert(a, operand, node.type);
    case ScalarOp::kRoundF16:
      return e.FromStorage(e.ToStorage(a, DType::kF32, DType::kF16), DType::kF16, DType::kF32);
    case ScalarOp::kRoundBF16:
      return e.FromStorage(e.ToStorage(a, DType::kF32, DType::kBF16), DType::kBF16, DType::kF32);
  }
  __builtin_unreachable();
}

std::vector<int32_t> StoredNodes(std::span<const ir::Store> stores) {
  std::vector<int32_t> nodes;
  for (const ir::Store& store : stores) nodes.push_back(store.node);
  return nodes;
}

std::vector<Value*> EmitScalarProgram(VectorEmitter& e, const ir::ScalarProgram& program,
                                      std::span<const int32_t> roots, const LeafValue& leaf) {
  const std::vector<bool> needed = ir::ReachableNodes(program, roots);
  std::vector<Value*> values(program.size(), nullptr);
  auto value = [&](int32_t node) { return node < 0 ? nullptr : values[static_cast<size_t>(node)]; };
  for (size_t i = 0; i < program.size(); ++i) {
    if (!needed[i]) continue;
    const ScalarNode& node = program[i];
    if (ir::IsLeaf(node.op)) {
      values[i] = leaf(node);
      continue;
    }
    const int32_t last = node.c >= 0 ? node.c : node.b >= 0 ? node.b : node.a;
    const DType operand = last >= 0 ? program[static_cast<size_t>(last)].type : node.type;
    values[i] = EmitScalarOp(e, node, operand, value(node.a), value(node.b), value(node.c));
  }
  return values;
}

}  // namespace kiln::codegen
