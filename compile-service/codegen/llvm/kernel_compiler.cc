#include "compile-service/codegen/llvm/kernel_compiler.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include <chrono>

#include "common/artifact/kernel_blob.h"
#include "common/base/limits.h"
#include "compile-service/codegen/llvm/attention.h"
#include "compile-service/codegen/llvm/contraction.h"
#include "compile-service/codegen/llvm/kernel_frame.h"
#include "compile-service/codegen/llvm/llvm_target.h"
#include "compile-service/codegen/llvm/loop_nest.h"
#include "compile-service/codegen/llvm/mini_linker.h"
#include "compile-service/codegen/llvm/recurrent.h"
#include "compile-service/codegen/llvm/window.h"

namespace kiln::codegen {

namespace {

struct Emit {
  KernelFrame& frame;
  void operator()(const ir::LoopNestSpec& spec) { EmitLoopNest(frame, spec); }
  void operator()(const ir::ContractionSpec& spec) { EmitContraction(frame, spec); }
  void operator()(const ir::WindowSpec& spec) { EmitWindow(frame, spec); }
  void operator()(const ir::RecurrentSpec& spec) { EmitRecurrent(frame, spec); }
  void operator()(const ir::AttentionSpec& spec) { EmitAttention(frame, spec); }
};

int64_t MicrosecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

struct KernelCompiler::Impl {
  std::unique_ptr<LlvmTarget> target;
  std::unique_ptr<llvm::LLVMContext> context;

  // The module lives until the next call: a context keeps every constant it has seen, so each kernel gets its own.
  Result<std::unique_ptr<llvm::Module>> EmitModule(const ir::KernelSpec& spec) {
    RETURN_IF_ERROR(ir::VerifySpec(spec));
    context = std::make_unique<llvm::LLVMContext>();
    std::unique_ptr<llvm::Module> module = target->NewModule(*context);
    KernelFrame frame(*module, target->info(), spec);
    std::visit(Emit{frame}, spec.kernel);
    frame.Finish();
    return module;
  }
};

KernelCompiler::KernelCompiler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KernelCompiler::~KernelCompiler() = default;

Result<std::unique_ptr<KernelCompiler>> KernelCompiler::Create(Target target) {
  auto impl = std::make_unique<Impl>();
  ASSIGN_OR_RETURN(impl->target, LlvmTarget::Create(target));
  return std::unique_ptr<KernelCompiler>(new KernelCompiler(std::move(impl)));
}

Result<KernelCode> KernelCompiler::Compile(const ir::KernelSpec& spec) {
  const auto start = std::chrono::steady_clock::now();
  KernelCode code;
  ASSIGN_OR_RETURN(std::unique_ptr<llvm::Module> module, impl_->EmitModule(spec));
  code.emit_us = MicrosecondsSince(start);
  const auto emitted = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(std::vector<uint8_t> object, impl_->target->Object(*module));
  ASSIGN_OR_RETURN(FlatCode flat, LinkFlat(object, impl_->target->info().architecture, KernelFrame::kEntryName));
  if (flat.bytes.size() + kKernelHeaderBytes > limits::kKernelBlobBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "the kernel has " + std::to_string(flat.bytes.size()) +
                                               " bytes of code; the limit is " +
                                               std::to_string(limits::kKernelBlobBytesMax) + "; choose a smaller tile");
  code.bytes = BuildKernelBlob(impl_->target->info().target, flat.entry_offset, flat.bytes);
  code.codegen_us = MicrosecondsSince(emitted);
  return code;
}

Result<std::string> KernelCompiler::EmitAssembly(const ir::KernelSpec& spec) {
  ASSIGN_OR_RETURN(std::unique_ptr<llvm::Module> module, impl_->EmitModule(spec));
  return impl_->target->Assembly(*module);
}

}  // namespace kiln::codegen
