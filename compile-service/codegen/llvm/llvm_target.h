// LlvmTarget: a target machine, and the only file that meets LLVM's code generation API, which changes between
// releases.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/result.h"

namespace llvm {
class LLVMContext;
class Module;
class TargetMachine;
}  // namespace llvm

namespace kiln::codegen {

// Not thread-safe: one per thread, long-lived.
class LlvmTarget {
 public:
  static Result<std::unique_ptr<LlvmTarget>> Create(Target target);
  ~LlvmTarget();

  const TargetInfo& info() const { return info_; }
  // An empty module with this target's triple and data layout.
  std::unique_ptr<llvm::Module> NewModule(llvm::LLVMContext& context) const;
  // A relocatable ELF object, or assembly text. CompileFailed when LLVM reports an error in between.
  Result<std::vector<uint8_t>> Object(llvm::Module& module);
  Result<std::string> Assembly(llvm::Module& module);

 private:
  LlvmTarget(const TargetInfo& info, std::unique_ptr<llvm::TargetMachine> machine);
  enum class Output { kObject, kAssembly };
  Status Generate(llvm::Module& module, Output output, std::string* bytes);

  const TargetInfo& info_;
  std::unique_ptr<llvm::TargetMachine> machine_;
};

}  // namespace kiln::codegen
