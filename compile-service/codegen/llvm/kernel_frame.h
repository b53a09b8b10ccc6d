// KernelFrame: the function being emitted, with the ABI's arguments unpacked (kernel_abi.h).
#pragma once

#include <memory>
#include <vector>

#include "compile-service/codegen/llvm/vector_emitter.h"
#include "compile-service/ir/kernel_spec.h"

namespace llvm {
class Module;
}

namespace kiln::codegen {

class KernelFrame {
 public:
  // Creates `kernel` in `module`; the builder then stands where begin < end holds. All pointers and dims are loaded
  // there.
  KernelFrame(llvm::Module& module, const TargetInfo& target, const ir::KernelSpec& spec);
  // Ends the function.
  void Finish();

  VectorEmitter& emitter() { return emitter_; }
  llvm::Value* begin() const { return begin_; }
  llvm::Value* end() const { return end_; }
  llvm::Value* Pointer(int32_t index) const { return pointers_[static_cast<size_t>(index)]; }
  llvm::Value* Dim(int32_t index) const { return dims_[static_cast<size_t>(index)]; }
  // i64: the constant, or the argument.
  llvm::Value* Int(const ir::SpecInt& value) const;
  llvm::Value* Scratch();

  static constexpr const char* kEntryName = "kernel";

 private:
  static llvm::Function* MakeFunction(llvm::Module& module, const TargetInfo& target);

  llvm::Function* function_;
  llvm::IRBuilder<> builder_;
  VectorEmitter emitter_;
  llvm::BasicBlock* exit_ = nullptr;
  llvm::Value* begin_ = nullptr;
  llvm::Value* end_ = nullptr;
  llvm::Value* scratch_ = nullptr;
  std::vector<llvm::Value*> pointers_, dims_;
};

}  // namespace kiln::codegen
