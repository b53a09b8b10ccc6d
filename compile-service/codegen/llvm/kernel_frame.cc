#include "compile-service/codegen/llvm/kernel_frame.h"

#include <llvm/IR/Module.h>

#include <string>

namespace kiln::codegen {

using llvm::Value;

llvm::Function* KernelFrame::MakeFunction(llvm::Module& module, const TargetInfo& target) {
  llvm::LLVMContext& context = module.getContext();
  auto* pointer = llvm::PointerType::get(context, 0);
  auto* i64 = llvm::Type::getInt64Ty(context);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer, i64, i64}, false);
  auto* function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, kEntryName, module);
  const std::string width = std::to_string(8 * target.vector_bytes);
  function->addFnAttr("prefer-vector-width", width);
  function->addFnAttr("min-legal-vector-width", width);
  function->addFnAttr("no-builtins");
  function->addFnAttr(llvm::Attribute::NoUnwind);
  return function;
}

KernelFrame::KernelFrame(llvm::Module& module, const TargetInfo& target, const ir::KernelSpec& spec)
    : function_(MakeFunction(module, target)),
      builder_(llvm::BasicBlock::Create(module.getContext(), "entry", function_)),
      emitter_(builder_, target, function_) {
  llvm::FastMathFlags flags;
  flags.setAllowContract();
  builder_.setFastMathFlags(flags);
  Value* args = function_->getArg(0);
  begin_ = function_->getArg(1);
  end_ = function_->getArg(2);
  auto* work = llvm::BasicBlock::Create(module.getContext(), "work", function_);
  exit_ = llvm::BasicBlock::Create(module.getContext(), "done", function_);
  builder_.CreateCondBr(builder_.CreateICmpSLT(begin_, end_), work, exit_);
  builder_.SetInsertPoint(work);

  llvm::Type* pointer = builder_.getPtrTy();
  auto field = [&](unsigned index) {
    return builder_.CreateLoad(pointer, builder_.CreateConstGEP1_32(pointer, args, index));
  };
  Value* pointers = field(0);
  for (int32_t i = 0; i < spec.pointers; ++i)
    pointers_.push_back(
        builder_.CreateLoad(pointer, builder_.CreateConstGEP1_32(pointer, pointers, static_cast<unsigned>(i))));
  if (spec.dims > 0) {
    Value* dims = field(1);
    for (int32_t i = 0; i < spec.dims; ++i)
      dims_.push_back(builder_.CreateLoad(
          builder_.getInt64Ty(), builder_.CreateConstGEP1_32(builder_.getInt64Ty(), dims, static_cast<unsigned>(i))));
  }
  scratch_ = field(2);
}

Value* KernelFrame::Int(const ir::SpecInt& value) const {
  return value.is_argument ? Dim(static_cast<int32_t>(value.value)) : emitter_.I64(value.value);
}

Value* KernelFrame::Scratch() {
  return scratch_;
}

void KernelFrame::Finish() {
  builder_.CreateBr(exit_);
  exit_->moveAfter(builder_.GetInsertBlock());
  builder_.SetInsertPoint(exit_);
  builder_.CreateRetVoid();
}

}  // namespace kiln::codegen
