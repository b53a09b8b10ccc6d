#include "compile-service/codegen/llvm/llvm_target.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <mutex>

namespace kiln::codegen {

namespace {

void InitializeBackends() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
  });
}

// LLVM still produces an object after an error, so errors are collected and the object is dropped.
struct ErrorCollector final : llvm::DiagnosticHandler {
  explicit ErrorCollector(std::string* text) : text(text) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error) return true;
    llvm::raw_string_ostream stream(*text);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info.print(printer);
    return true;
  }
  std::string* text;
};

}  // namespace

LlvmTarget::LlvmTarget(const TargetInfo& info, std::unique_ptr<llvm::TargetMachine> machine)
    : info_(info), machine_(std::move(machine)) {}
LlvmTarget::~LlvmTarget() = default;

Result<std::unique_ptr<LlvmTarget>> LlvmTarget::Create(Target target) {
  const TargetInfo& info = InfoOf(target);
  if (info.is_device())
    return Fail(ErrorCode::kUnsupported,
                "LLVM makes no kernels for target " + std::string(info.name) + "; codegen/cuda does");
  InitializeBackends();
  const bool is_x86 = info.architecture == Architecture::kX86;
  const char* triple = is_x86 ? "x86_64-unknown-linux-gnu" : "aarch64-unknown-linux-gnu";
  std::string message;
  const llvm::Target* backend = llvm::TargetRegistry::lookupTarget(triple, message);
  if (backend == nullptr)
    return Fail(ErrorCode::kUnsupported, "LLVM has no backend for target " + std::string(info.name) + ": " + message);
  llvm::TargetOptions options;
  options.UseInitArray = true;
  // The tiny model of aarch64 reaches constants relative to the instruction, not to its page: code may lie at any
  // address.
  const auto code_model = is_x86 ? llvm::CodeModel::Small : llvm::CodeModel::Tiny;
  std::unique_ptr<llvm::TargetMachine> machine(backend->createTargetMachine(triple, info.llvm_cpu, info.llvm_features,
                                                                            options, llvm::Reloc::PIC_, code_model,
                                                                            llvm::CodeGenOptLevel::Aggressive));
  if (machine == nullptr)
    return Fail(ErrorCode::kUnsupported, "LLVM cannot make a machine for target " + std::string(info.name));
  return std::unique_ptr<LlvmTarget>(new LlvmTarget(info, std::move(machine)));
}

std::unique_ptr<llvm::Module> LlvmTarget::NewModule(llvm::LLVMContext& context) const {
  auto module = std::make_unique<llvm::Module>("kernel", context);
  module->setTargetTriple(machine_->getTargetTriple().str());
  module->setDataLayout(machine_->createDataLayout());
  return module;
}

Status LlvmTarget::Generate(llvm::Module& module, Output output, std::string* bytes) {
  std::string errors;
  llvm::raw_string_ostream error_stream(errors);
  if (llvm::verifyModule(module, &error_stream))
    return Fail(ErrorCode::kInternal, "the emitted IR is not valid: " + errors);
  module.getContext().setDiagnosticHandler(std::make_unique<ErrorCollector>(&errors));
  llvm::SmallVector<char, 0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  llvm::legacy::PassManager passes;
  const auto type = output == Output::kObject ? llvm::CodeGenFileType::ObjectFile : llvm::CodeGenFileType::AssemblyFile;
  if (machine_->addPassesToEmitFile(passes, stream, nullptr, type))
    return Fail(ErrorCode::kInternal, "LLVM cannot emit this kind of file for target " + std::string(info_.name));
  passes.run(module);
  module.getContext().setDiagnosticHandler(nullptr);
  if (!errors.empty()) return Fail(ErrorCode::kCompileFailed, "code generation failed: " + errors);
  bytes->assign(buffer.begin(), buffer.end());
  return {};
}

Result<std::vector<uint8_t>> LlvmTarget::Object(llvm::Module& module) {
  std::string bytes;
  RETURN_IF_ERROR(Generate(module, Output::kObject, &bytes));
  return std::vector<uint8_t>(bytes.begin(), bytes.end());
}

Result<std::string> LlvmTarget::Assembly(llvm::Module& module) {
  std::string bytes;
  RETURN_IF_ERROR(Generate(module, Output::kAssembly, &bytes));
  return bytes;
}

}  // namespace kiln::codegen
