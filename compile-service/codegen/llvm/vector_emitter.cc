#include "compile-service/codegen/llvm/vector_emitter.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include "common/base/check.h"

namespace kiln::codegen {

using llvm::ConstantInt;
using llvm::FixedVectorType;
using llvm::Value;

VectorEmitter::VectorEmitter(llvm::IRBuilder<>& builder, const TargetInfo& target, llvm::Function* function)
    : builder_(builder), target_(target), function_(function) {}

bool VectorEmitter::has_fma() const {
  return target_.architecture == Architecture::kArm || target_.rung >= 3;
}
bool VectorEmitter::has_avx512() const {
  return target_.has_avx512();
}

// --- types and constants ---

llvm::Type* VectorEmitter::ScalarType(DType compute) const {
  if (compute == DType::kBool) return builder_.getInt1Ty();
  return StorageType(compute);
}

llvm::Type* VectorEmitter::StorageType(DType storage) const {
  if (storage == DType::kF32) return builder_.getFloatTy();
  if (storage == DType::kF64) return builder_.getDoubleTy();
  return builder_.getIntNTy(static_cast<unsigned>(8 * DTypeBytes(storage)));
}

llvm::Type* VectorEmitter::VectorType(DType compute) const {
  return FixedVectorType::get(ScalarType(compute), static_cast<unsigned>(lanes()));
}

Value* VectorEmitter::I64(int64_t value) const {
  return builder_.getInt64(static_cast<uint64_t>(value));
}

Value* VectorEmitter::Splat(Value* scalar) {
  return builder_.CreateVectorSplat(static_cast<unsigned>(lanes()), scalar);
}
Value* VectorEmitter::SplatF32(float value) {
  return llvm::ConstantFP::get(VectorType(DType::kF32), value);
}
Value* VectorEmitter::SplatF64(double value) {
  return llvm::ConstantFP::get(VectorType(DType::kF64), value);
}
Value* VectorEmitter::SplatI32(int32_t value) {
  return ConstantInt::get(VectorType(DType::kI32), static_cast<uint64_t>(static_cast<int64_t>(value)), true);
}
Value* VectorEmitter::SplatI64(int64_t value) {
  return ConstantInt::get(VectorType(DType::kI64), static_cast<uint64_t>(value), true);
}
Value* VectorEmitter::Zero(DType compute) const {
  return llvm::Constant::getNullValue(VectorType(compute));
}

Value* VectorEmitter::LaneIndices() {
  std::vector<llvm::Constant*> lane_numbers;
  for (int i = 0; i < lanes(); ++i) lane_numbers.push_back(builder_.getInt64(static_cast<uint64_t>(i)));
  return llvm::ConstantVector::get(lane_numbers);
}

Active VectorEmitter::First(Value* count) {
  if (auto* constant = llvm::dyn_cast<ConstantInt>(count); constant && constant->getSExtValue() >= lanes()) return {};
  std::vector<llvm::Constant*> lane_numbers;
  for (int i = 0; i < lanes(); ++i) lane_numbers.push_back(builder_.getInt32(static_cast<uint32_t>(i)));
  Value* limit = Splat(builder_.CreateTrunc(count, builder_.getInt32Ty()));
  return {count, builder_.CreateICmpULT(llvm::ConstantVector::get(lane_numbers), limit)};
}

// --- arithmetic shared by emitters ---

Value* VectorEmitter::MulAdd(Value* a, Value* b, Value* c) {
  if (has_fma()) return builder_.CreateIntrinsic(a->getType(), llvm::Intrinsic::fma, {a, b, c});
  return builder_.CreateFAdd(builder_.CreateFMul(a, b), c);
}

namespace {
// A compare-and-select maps to one min or max instruction, which gives its second operand when either is a NaN, or both
// are zeros. Of two zeros the first one is the result, as in the reference kernels.
const llvm::ConstantFP* NumberIn(Value* value) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  auto* number = constant ? llvm::dyn_cast_or_null<llvm::ConstantFP>(constant->getSplatValue()) : nullptr;
  return number && !number->isNaN() ? number : nullptr;
}

Value* Extreme(llvm::IRBuilder<>& ir, llvm::CmpInst::Predicate better, Value* a, Value* b) {
  if (const llvm::ConstantFP* number = NumberIn(a); number && !number->isZero()) std::swap(a, b);
  Value* result = ir.CreateSelect(ir.CreateFCmp(better, b, a), b, a);
  if (NumberIn(b)) return result;
  return ir.CreateSelect(ir.CreateFCmpUNO(b, b), b, result);
}
}  // namespace

Value* VectorEmitter::Minimum(Value* a, Value* b, DType type) {
  if (!IsFloat(type)) return builder_.CreateSelect(builder_.CreateICmpSLT(a, b), a, b);
  return Extreme(builder_, llvm::CmpInst::FCMP_OLT, a, b);
}

Value* VectorEmitter::Maximum(Value* a, Value* b, DType type) {
  if (!IsFloat(type)) return builder_.CreateSelect(builder_.CreateICmpSGT(a, b), a, b);
  return Extreme(builder_, llvm::CmpInst::FCMP_OGT, a, b);
}

Value* VectorEmitter::ReduceLanes(Value* value, const std::function<Value*(Value*, Value*)>& combine) {
  // Halves narrow as they go, so that the last steps run in the cheapest registers; lane 0 is then broadcast.
  const auto full = static_cast<unsigned>(lanes());
  for (unsigned half = full / 2; half >= 1; half /= 2) {
    std::vector<int> low, high;
    for (unsigned i = 0; i < full; ++i) {
      low.push_back(static_cast<int>(i));
      high.push_back(i < half ? static_cast<int>(i + half) : -1);
    }
    value = combine(value, builder_.CreateShuffleVector(value, high));
  }
  return builder_.CreateShuffleVector(value, std::vector<int>(full, 0));
}

// --- control ---

VectorEmitter::Values VectorEmitter::Loop(Value* begin, Value* end, int64_t step, const Values& carried,
                                          const LoopBody& body) {
  // With constant bounds the guard goes, and so does the loop when it runs once or never.
  auto* const_begin = llvm::dyn_cast<ConstantInt>(begin);
  auto* const_end = llvm::dyn_cast<ConstantInt>(end);
  const bool known = const_begin && const_end;
  if (known && const_begin->getSExtValue() >= const_end->getSExtValue()) return carried;
  if (known && const_begin->getSExtValue() + step >= const_end->getSExtValue()) return body(begin, carried);
  llvm::LLVMContext& context = builder_.getContext();
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  auto* loop = llvm::BasicBlock::Create(context, "loop", function_);
  auto* exit = llvm::BasicBlock::Create(context, "exit", function_);
  if (known) {
    builder_.CreateBr(loop);
  } else {
    builder_.CreateCondBr(builder_.CreateICmpSLT(begin, end), loop, exit);
  }

  builder_.SetInsertPoint(loop);
  llvm::PHINode* i = builder_.CreatePHI(builder_.getInt64Ty(), 2);
  i->addIncoming(begin, before);
  std::vector<llvm::PHINode*> phis;
  Values inside;
  for (Value* value : carried) {
    phis.push_back(builder_.CreatePHI(value->getType(), 2));
    phis.back()->addIncoming(value, before);
    inside.push_back(phis.back());
  }
  Values next = body(i, inside);
  KILN_CHECK(next.size() == carried.size());
  Value* next_i = builder_.CreateAdd(i, I64(step), "", true, true);
  llvm::BasicBlock* last = builder_.GetInsertBlock();
  builder_.CreateCondBr(builder_.CreateICmpSLT(next_i, end), loop, exit);
  i->addIncoming(next_i, last);
  for (size_t k = 0; k < phis.size(); ++k) phis[k]->addIncoming(next[k], last);

  exit->moveAfter(last);
  builder_.SetInsertPoint(exit);
  Values results;
  for (size_t k = 0; k < carried.size(); ++k) {
    llvm::PHINode* phi = builder_.CreatePHI(carried[k]->getType(), 2);
    if (!known) phi->addIncoming(carried[k], before);
    phi->addIncoming(next[k], last);
    results.push_back(phi);
  }
  return results;
}

void VectorEmitter::LoopFrom(Value* begin, Value* end, const std::function<Value*(Value* i)>& body) {
  llvm::LLVMContext& context = builder_.getContext();
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  auto* loop = llvm::BasicBlock::Create(context, "loop", function_);
  auto* exit = llvm::BasicBlock::Create(context, "exit", function_);
  builder_.CreateBr(loop);
  builder_.SetInsertPoint(loop);
  llvm::PHINode* i = builder_.CreatePHI(builder_.getInt64Ty(), 2);
  i->addIncoming(begin, before);
  Value* next = body(i);
  llvm::BasicBlock* last = builder_.GetInsertBlock();
  i->addIncoming(next, last);
  builder_.CreateCondBr(builder_.CreateICmpSLT(next, end), loop, exit);
  exit->moveAfter(last);
  builder_.SetInsertPoint(exit);
}

void VectorEmitter::If(Value* condition, const std::function<void()>& then) {
  auto* inside = llvm::BasicBlock::Create(builder_.getContext(), "then", function_);
  auto* after = llvm::BasicBlock::Create(builder_.getContext(), "after", function_);
  builder_.CreateCondBr(condition, inside, after);
  builder_.SetInsertPoint(inside);
  then();
  builder_.CreateBr(after);
  after->moveAfter(builder_.GetInsertBlock());
  builder_.SetInsertPoint(after);
}

VectorEmitter::Values VectorEmitter::IfElse(Value* condition, const std::function<Values()>& then,
                                            const std::function<Values()>& otherwise) {
  auto* first = llvm::BasicBlock::Create(builder_.getContext(), "then", function_);
  auto* second = llvm::BasicBlock::Create(builder_.getContext(), "else", function_);
  auto* after = llvm::BasicBlock::Create(builder_.getContext(), "after", function_);
  builder_.CreateCondBr(condition, first, second);
  builder_.SetInsertPoint(first);
  const Values a = then();
  llvm::BasicBlock* a_end = builder_.GetInsertBlock();
  builder_.CreateBr(after);
  builder_.SetInsertPoint(second);
  const Values b = otherwise();
  llvm::BasicBlock* b_end = builder_.GetInsertBlock();
  builder_.CreateBr(after);
  KILN_CHECK(a.size() == b.size());
  after->moveAfter(b_end);
  builder_.SetInsertPoint(after);
  Values results;
  for (size_t k = 0; k < a.size(); ++k) {
    llvm::PHINode* phi = builder_.CreatePHI(a[k]->getType(), 2);
    phi->addIncoming(a[k], a_end);
    phi->addIncoming(b[k], b_end);
    results.push_back(phi);
  }
  return results;
}

}  // namespace kiln::codegen
