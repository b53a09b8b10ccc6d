#include "common/bytecode/compact.h"

#include <fmt/format.h>

#include "common/base/check.h"

namespace kiln {
namespace {

bool IsList(char format) {
  return format == 'R' || format == 'W' || format == 'Y';
}

std::string RegisterText(uint32_t index) {
  return index == kNoRegister ? "_" : fmt::format("r{}", index);
}

std::string OperandText(const CompactOperand& operand, const CompactProgram& compact, const Program& program) {
  switch (operand.format) {
    case 'r':
    case 'w':
    case 'x':
      return RegisterText(operand.word);
    case 'R':
    case 'W':
    case 'Y': {
      std::string text = operand.format == 'R' ? "(" : operand.format == 'W' ? "-> (" : "or (";
      for (size_t i = 0; i < operand.list.size(); ++i) text += (i ? ", " : "") + RegisterText(operand.list[i]);
      return text + ")";
    }
    case 't':
      return fmt::format("@{}", operand.word);
    case 'n': {
      if (operand.word >= compact.nodes.size()) return "node ?";
      const Node& node = compact.nodes[operand.word].In(program);
      return node.name.empty() ? std::string(OpInfo(node.op).name)
                               : fmt::format("{} \"{}\"", OpInfo(node.op).name, node.name);
    }
    case 'c': {
      if (operand.word >= program.constants.size()) return "constant ?";
      const Constant& constant = program.constants[operand.word];
      return fmt::format("{} #{} {}{}", constant.is_immediate ? "immediate" : "weight", operand.word,
                         DTypeName(constant.tensor.dtype()), constant.tensor.dims().ToString());
    }
    case 'b': {
      if (operand.word >= compact.bindings.size()) return "binding ?";
      const ShapeBinding& binding = compact.bindings[operand.word];
      const Value& value =
          program.functions[static_cast<size_t>(binding.function)].values[static_cast<size_t>(binding.value)];
      return ToString(value.desc, program.symbols);
    }
    case 's':
      return fmt::format("segment {}", operand.word);
    default:
      return fmt::format("{}", operand.word);
  }
}

}  // namespace

Status DecodeInstruction(const CompactProgram& program, uint32_t pc, CompactInstruction* instruction) {
  const std::vector<uint32_t>& code = program.code;
  if (pc >= code.size())
    return Fail(ErrorCode::kMalformed, fmt::format("instruction {} lies past the end {} of the code", pc, code.size()));
  const std::optional<Opcode> opcode = OpcodeFromNumber(code[pc] & 0xff);
  if (!opcode) return Fail(ErrorCode::kMalformed, fmt::format("word {} holds no opcode ({})", pc, code[pc] & 0xff));
  const uint64_t length = code[pc] >> 8;
  if (length == 0 || pc + length > code.size())
    return Fail(ErrorCode::kMalformed,
                fmt::format("instruction {} has length {}, past the end of the code", pc, length));
  instruction->opcode = *opcode;
  instruction->pc = pc;
  instruction->next = pc + static_cast<uint32_t>(length);
  instruction->operands.clear();
  uint64_t at = pc + 1;
  for (char format : InfoOf(*opcode).format) {
    if (format == '.') continue;
    if (at >= instruction->next)
      return Fail(ErrorCode::kMalformed, fmt::format("instruction {} lacks operand '{}'", pc, format));
    CompactOperand operand{format, code[at++], {}};
    if (IsList(format)) {
      if (at + operand.word > instruction->next)
        return Fail(ErrorCode::kMalformed,
                    fmt::format("instruction {} has a list of {} registers, longer than itself", pc, operand.word));
      operand.list = std::span(code).subspan(at, operand.word);
      at += operand.word;
    }
    instruction->operands.push_back(operand);
  }
  if (at != instruction->next)
    return Fail(ErrorCode::kMalformed,
                fmt::format("instruction {} has {} words after its operands", pc, instruction->next - at));
  return {};
}

CompactWriter& CompactWriter::Begin(Opcode opcode) {
  head_ = program_->code.size();
  program_->code.push_back(static_cast<uint32_t>(opcode));
  return *this;
}

CompactWriter& CompactWriter::Word(uint32_t word) {
  program_->code.push_back(word);
  return *this;
}

CompactWriter& CompactWriter::List(std::span<const uint32_t> registers) {
  Word(static_cast<uint32_t>(registers.size()));
  program_->code.insert(program_->code.end(), registers.begin(), registers.end());
  return *this;
}

size_t CompactWriter::Target() {
  program_->code.push_back(0);
  return program_->code.size() - 1;
}

void CompactWriter::End() {
  const size_t length = program_->code.size() - head_;
  KILN_CHECK(length < (size_t{1} << 24));
  program_->code[head_] |= static_cast<uint32_t>(length) << 8;
}

std::string Disassemble(const CompactProgram& compact, const Program& program) {
  std::string text;
  CompactInstruction instruction;
  for (uint32_t pc = 0; pc < compact.code.size(); pc = instruction.next) {
    for (size_t i = 0; i < compact.entries.size(); ++i)
      if (compact.entries[i] == pc) text += fmt::format("function {} \"{}\":\n", i, program.functions[i].name);
    if (Status status = DecodeInstruction(compact, pc, &instruction); !status)
      return text + fmt::format("{:6}  ? {}\n", pc, status.error().message);
    text += fmt::format("{:6}  {:<24}", pc, InfoOf(instruction.opcode).mnemonic);
    for (const CompactOperand& operand : instruction.operands) text += " " + OperandText(operand, compact, program);
    text += "\n";
  }
  return text;
}

}  // namespace kiln
