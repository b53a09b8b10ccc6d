#include "compile-service/codegen/disassembler/disassembler.h"

#include <fmt/format.h>
#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstPrinter.h>
#include <llvm/MC/MCInstrAnalysis.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/MCTargetOptions.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Triple.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "common/artifact/kernel_blob.h"
#include "common/base/limits.h"

namespace kiln::codegen {
namespace {

constexpr size_t kKindsShown = 10;
constexpr const char* kRestLeftOut = "  … the rest is left out\n";

struct Instruction {
  llvm::MCInst inst;
  uint64_t size = 0;
};

// What LLVM needs to read code of one target.
struct Reader {
  std::unique_ptr<llvm::MCRegisterInfo> registers;
  std::unique_ptr<llvm::MCAsmInfo> assembler;
  std::unique_ptr<llvm::MCInstrInfo> instructions;
  std::unique_ptr<llvm::MCSubtargetInfo> features;
  std::unique_ptr<llvm::MCContext> context;
  std::unique_ptr<llvm::MCDisassembler> disassembler;
  std::unique_ptr<llvm::MCInstPrinter> printer;
  std::unique_ptr<llvm::MCInstrAnalysis> analysis;

  static Result<Reader> For(const TargetInfo& info) {
    static std::once_flag once;
    std::call_once(once, [] {
      LLVMInitializeX86TargetInfo();
      LLVMInitializeX86TargetMC();
      LLVMInitializeX86Disassembler();
      LLVMInitializeAArch64TargetInfo();
      LLVMInitializeAArch64TargetMC();
      LLVMInitializeAArch64Disassembler();
    });
    const bool x86 = info.architecture == Architecture::kX86;
    const llvm::Triple triple(x86 ? "x86_64-unknown-linux-gnu" : "aarch64-unknown-linux-gnu");
    std::string message;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple.str(), message);
    if (target == nullptr) return Fail(ErrorCode::kUnsupported, "no disassembler: " + message);
    Reader reader;
    reader.registers.reset(target->createMCRegInfo(triple.str()));
    reader.assembler.reset(target->createMCAsmInfo(*reader.registers, triple.str(), llvm::MCTargetOptions()));
    reader.instructions.reset(target->createMCInstrInfo());
    reader.features.reset(target->createMCSubtargetInfo(triple.str(), info.llvm_cpu, info.llvm_features));
    reader.context = std::make_unique<llvm::MCContext>(triple, reader.assembler.get(), reader.registers.get(),
                                                       reader.features.get());
    reader.disassembler.reset(target->createMCDisassembler(*reader.features, *reader.context));
    reader.printer.reset(
        target->createMCInstPrinter(triple, x86 ? 1 : 0, *reader.assembler, *reader.instructions, *reader.registers));
    reader.analysis.reset(target->createMCInstrAnalysis(reader.instructions.get()));
    if (reader.disassembler == nullptr || reader.printer == nullptr || reader.analysis == nullptr)
      return Fail(ErrorCode::kUnsupported, "LLVM cannot disassemble code for " + std::string(info.name));
    reader.printer->setPrintImmHex(true);
    return reader;
  }
};

class Listing {
 public:
  Listing(Reader& reader, const KernelBlobView& blob) : reader_(reader), blob_(blob) {}

  // Follows every path from the entry.
  void Walk() {
    std::vector<uint64_t> pending = {blob_.entry_offset};
    while (!pending.empty()) {
      uint64_t at = pending.back();
      pending.pop_back();
      while (at < blob_.bytes.size() && !code_.contains(at)) {
        if (code_.size() >= limits::kListingInstructionsMax) return;
        const Instruction* read = Read(at);
        if (read == nullptr) break;
        uint64_t target = 0;
        if (Target(at, *read, &target)) {
          ++(target <= at ? loops_ : jumps_)[target];
          pending.push_back(target);
        }
        if (reader_.analysis->isReturn(read->inst) || reader_.analysis->isUnconditionalBranch(read->inst) ||
            reader_.analysis->isIndirectBranch(read->inst))
          break;
        at += read->size;
      }
    }
  }

  std::string Text() {
    std::string text = Summary();
    uint64_t next = blob_.entry_offset;
    for (const auto& [at, instruction] : code_) {
      if (text.size() > limits::kListingBytesMax) return text + kRestLeftOut;
      if (at != next && at != code_.begin()->first) text += "\n";
      if (at == blob_.entry_offset) text += "entry:\n";
      if (const auto loop = loops_.find(at); loop != loops_.end()) {
        text += fmt::format("L{:x}:    ; loop{}\n", at,
                            loop->second > 1 ? fmt::format(", {} jumps back", loop->second) : "");
      } else if (jumps_.contains(at)) {
        text += fmt::format("L{:x}:\n", at);
      }
      text += fmt::format("  {:5x}  {}\n", at, Line(at, instruction));
      next = at + instruction.size;
    }
    return code_.size() < limits::kListingInstructionsMax ? text : text + kRestLeftOut;
  }

 private:
  const Instruction* Read(uint64_t at) {
    Instruction read;
    const llvm::ArrayRef<uint8_t> bytes(blob_.bytes.data() + at, blob_.bytes.size() - at);
    if (reader_.disassembler->getInstruction(read.inst, read.size, bytes, at, llvm::nulls()) !=
            llvm::MCDisassembler::Success ||
        read.size == 0)
      return nullptr;
    return &code_.emplace(at, read).first->second;
  }

  bool Target(uint64_t at, const Instruction& instruction, uint64_t* target) const {
    return reader_.analysis->isBranch(instruction.inst) &&
           reader_.analysis->evaluateBranch(instruction.inst, at, instruction.size, *target) &&
           *target < blob_.bytes.size();
  }

  std::string Line(uint64_t at, const Instruction& instruction) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    reader_.printer->printInst(&instruction.inst, at, "", *reader_.features, stream);
    std::string line;  // no tabs, so that columns stay
    for (const char c : text) {
      if (c == '\n') break;
      line += c == '\t' ? ' ' : c;
    }
    if (line.starts_with(' ')) line.erase(0, 1);
    uint64_t target = 0;
    if (Target(at, instruction, &target)) {
      const size_t operand = line.find_last_of(' ');
      return line.substr(0, operand) + fmt::format(" L{:x}", target) + (target <= at ? "    ; back" : "");
    }
    const auto address =
        reader_.analysis->evaluateMemoryOperandAddress(instruction.inst, reader_.features.get(), at, instruction.size);
    float value = 0;
    if (address && *address <= blob_.bytes.size() - sizeof value && !code_.contains(*address)) {
      std::memcpy(&value, blob_.bytes.data() + *address, sizeof value);
      line = fmt::format("{:<56}; constant at {:x}: {:g} as f32", line, *address, value);
    }
    return line;
  }

  std::string Summary() {
    std::map<std::string, int> counts;
    uint64_t bytes = 0;
    for (const auto& [at, instruction] : code_) {
      ++counts[std::string(reader_.printer->getMnemonic(&instruction.inst).first)];
      bytes += instruction.size;
    }
    std::multimap<int, std::string, std::greater<>> order;
    for (const auto& [name, count] : counts) {
      std::string mnemonic;
      for (const char c : name)
        if (c != '\t' && c != ' ') mnemonic += c;
      order.emplace(count, mnemonic);
    }
    std::string text = fmt::format("{} bytes of code for {}, {} of constants; {} instructions in {} loops:", bytes,
                                   InfoOf(blob_.target).name, blob_.bytes.size() - kKernelHeaderBytes - bytes,
                                   code_.size(), loops_.size());
    size_t shown = 0;
    for (const auto& [count, mnemonic] : order) {
      if (++shown > kKindsShown) break;
      text += fmt::format("{} {} ×{}", shown == 1 ? "" : ",", mnemonic, count);
    }
    return text + "\n";
  }

  Reader& reader_;
  const KernelBlobView& blob_;
  std::map<uint64_t, Instruction> code_;
  std::map<uint64_t, int> loops_, jumps_;  // target → jumps from behind it, from before it
};

}  // namespace

Result<std::string> Disassemble(std::span<const uint8_t> bytes) {
  ASSIGN_OR_RETURN(const KernelBlobView blob, ParseKernelBlob(bytes));
  if (InfoOf(blob.target).is_device())
    return Fail(ErrorCode::kUnsupported, "the image of a kernel for " + std::string(InfoOf(blob.target).name) +
                                             " is for the device's driver alone; there is no listing of it");
  ASSIGN_OR_RETURN(Reader reader, Reader::For(InfoOf(blob.target)));
  Listing listing(reader, blob);
  listing.Walk();
  return listing.Text();
}

}  // namespace kiln::codegen
