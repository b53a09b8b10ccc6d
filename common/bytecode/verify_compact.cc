#include "common/bytecode/verify_compact.h"

#include <fmt/format.h>

#include <map>

namespace kiln {
namespace {

using Registers = std::vector<bool>;  // which are defined

std::string At(const CompactInstruction& instruction) {
  return fmt::format("instruction {} ({})", instruction.pc, InfoOf(instruction.opcode).mnemonic);
}

class Verifier {
 public:
  Verifier(const CompactProgram& compact, const Program& program) : compact_(compact), program_(program) {}

  Status Run() {
    RETURN_IF_ERROR(Decode());
    if (compact_.entries.size() != program_.functions.size())
      return Fail(ErrorCode::kMalformed, fmt::format("code has {} entries for {} functions", compact_.entries.size(),
                                                     program_.functions.size()));
    for (uint32_t entry : compact_.entries)
      RETURN_IF_ERROR(Reach(entry, Registers(compact_.register_count, false), "an entry"));
    while (!work_.empty()) {
      const uint32_t pc = work_.back();
      work_.pop_back();
      RETURN_IF_ERROR(Flow(code_.at(pc), state_.at(pc)));
    }
    for (const auto& [pc, instruction] : code_)
      if (!state_.contains(pc)) return Fail(ErrorCode::kMalformed, At(instruction) + " is never reached");
    return {};
  }

 private:
  Status Decode() {
    for (uint32_t pc = 0; pc < compact_.code.size();) {
      CompactInstruction instruction;
      RETURN_IF_ERROR(DecodeInstruction(compact_, pc, &instruction));
      pc = instruction.next;
      code_.emplace(instruction.pc, std::move(instruction));
    }
    for (const auto& [pc, instruction] : code_)
      for (const CompactOperand& operand : instruction.operands) RETURN_IF_ERROR(CheckOperand(instruction, operand));
    return {};
  }

  Status CheckOperand(const CompactInstruction& instruction, const CompactOperand& operand) const {
    auto within = [&](size_t limit, const char* what) -> Status {
      if (operand.word < limit) return {};
      return Fail(ErrorCode::kMalformed,
                  fmt::format("{} names {} {}; there are {}", At(instruction), what, operand.word, limit));
    };
    switch (operand.format) {
      case 'r':
      case 'w':
      case 'x':
        return within(compact_.register_count, "register");
      case 'n':
        return within(compact_.nodes.size(), "node");
      case 'c':
        return within(program_.constants.size(), "constant");
      case 'b':
        return within(compact_.bindings.size(), "binding");
      case 's':
        return within(compact_.segments.size(), "segment");
      case 't':
        if (code_.contains(operand.word)) return {};
        return Fail(ErrorCode::kMalformed,
                    fmt::format("{} jumps to {}, where no instruction starts", At(instruction), operand.word));
      case 'R':
      case 'W':
      case 'Y':
        for (uint32_t index : operand.list)
          if (index >= compact_.register_count && index != kNoRegister)
            return Fail(ErrorCode::kMalformed, fmt::format("{} names register {}; there are {}", At(instruction), index,
                                                           compact_.register_count));
        return {};
      default:
        return {};
    }
  }

  // Notes that `pc` is reached with `defined`.
  Status Reach(uint32_t pc, const Registers& defined, const std::string& from) {
    if (!code_.contains(pc))
      return Fail(ErrorCode::kMalformed, fmt::format("{} leads to {}, where no instruction starts", from, pc));
    auto [place, first] = state_.emplace(pc, defined);
    if (first) {
      work_.push_back(pc);
    } else if (place->second != defined) {
      size_t index = 0;
      while (place->second[index] == defined[index]) ++index;
      return Fail(ErrorCode::kMalformed,
                  fmt::format("register {} is defined on one path to instruction {} and not on another", index, pc));
    }
    return {};
  }

  Status Flow(const CompactInstruction& instruction, const Registers& before) {
    Registers through = before, jump = before;
    std::vector<uint32_t> targets;
    auto read = [&](uint32_t index) -> Status {
      if (index == kNoRegister || before[index]) return {};
      return Fail(ErrorCode::kMalformed,
                  fmt::format("{} reads register {}, which is not defined", At(instruction), index));
    };
    for (const CompactOperand& operand : instruction.operands) {
      if (operand.format == 'r' || operand.format == 'x') RETURN_IF_ERROR(read(operand.word));
      if (operand.format == 'x') through[operand.word] = jump[operand.word] = false;
      if (operand.format == 'w') through[operand.word] = true;
      if (operand.format == 't') targets.push_back(operand.word);
      for (uint32_t index : operand.list) {
        if (operand.format == 'R') RETURN_IF_ERROR(read(index));
        if (index == kNoRegister) continue;
        if (operand.format == 'W') through[index] = true;
        if (operand.format == 'Y') jump[index] = true;
      }
    }
    for (uint32_t target : targets) RETURN_IF_ERROR(Reach(target, jump, At(instruction)));
    if (!InfoOf(instruction.opcode).format.ends_with('.')) return Reach(instruction.next, through, At(instruction));
    if (!targets.empty()) return {};
    for (size_t i = 0; i < before.size(); ++i)
      if (before[i])
        return Fail(ErrorCode::kMalformed, fmt::format("register {} is still defined at {}", i, At(instruction)));
    return {};
  }

  const CompactProgram& compact_;
  const Program& program_;
  std::map<uint32_t, CompactInstruction> code_;
  std::map<uint32_t, Registers> state_;
  std::vector<uint32_t> work_;
};

}  // namespace

Status VerifyCompact(const CompactProgram& compact, const Program& program) {
  return Verifier(compact, program).Run();
}

}  // namespace kiln
