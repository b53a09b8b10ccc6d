// Compact form: the dense instruction stream that the interpreter runs. In memory only; EmitCompact makes it from a
// Program, nothing edits it, and nothing is made from it but its text.
//
// Code is a vector of 32-bit words. A head word holds the opcode (low 8 bits) and the instruction's length in words
// (high 24); operands follow in the order of the opcode's format, a list as its count and its registers.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/opcode.h"
#include "common/bytecode/program.h"

namespace kiln {

inline constexpr uint32_t kNoRegister = 0xffffffff;

// Where a node lies in its program.
struct NodePlace {
  int32_t function = 0;
  RegionId region = 0;
  int32_t node = 0;
  auto operator<=>(const NodePlace&) const = default;

  const Node& In(const Program& program) const {
    return program.functions[static_cast<size_t>(function)]
        .regions[static_cast<size_t>(region)]
        .nodes[static_cast<size_t>(node)];
  }
};

// What BIND_SHAPE does with a value: `defines[i]` says whether dim i is a symbol that gets its value here, `unbound[i]`
// that it mentions one that has none yet, so that nothing can be checked.
struct ShapeBinding {
  int32_t function = 0;
  ValueId value = kNoValue;
  std::vector<bool> defines;
  std::vector<bool> unbound;
  std::vector<uint32_t> constraints;  // of the program: every symbol of theirs has its value here
};

// Where a segment's instructions lie: [variant, end) is the variant form.
struct CompactSegment {
  uint32_t entry = 0;  // its PROFILE_POINT
  uint32_t variant = 0;
  uint32_t end = 0;
};

struct CompactProgram {
  std::vector<uint32_t> code;
  uint32_t register_count = 0;
  std::vector<uint32_t> entries;  // first instruction per function
  std::vector<NodePlace> nodes;
  std::vector<ShapeBinding> bindings;
  std::vector<CompactSegment> segments;
};

// One operand in format order. A list is the span `list`; everything else is `word`.
struct CompactOperand {
  char format;
  uint32_t word = 0;
  std::span<const uint32_t> list;
};

// Decodes the instruction at `pc` by its opcode's format. Malformed when the words do not follow it. `operands` is
// reused.
struct CompactInstruction {
  Opcode opcode;
  uint32_t pc = 0;
  uint32_t next = 0;
  std::vector<CompactOperand> operands;
};
Status DecodeInstruction(const CompactProgram& program, uint32_t pc, CompactInstruction* instruction);

// Appends instructions. Operands are given in format order; targets may be patched later.
class CompactWriter {
 public:
  explicit CompactWriter(CompactProgram* program) : program_(program) {}

  CompactWriter& Begin(Opcode opcode);
  CompactWriter& Word(uint32_t word);
  CompactWriter& List(std::span<const uint32_t> registers);
  // A target that is not known yet; returns its place for Patch.
  size_t Target();
  void End();
  uint32_t here() const { return static_cast<uint32_t>(program_->code.size()); }
  void Patch(size_t place) { program_->code[place] = here(); }
  void Patch(size_t place, uint32_t target) { program_->code[place] = target; }

 private:
  CompactProgram* program_;
  size_t head_ = 0;
};

// One line per instruction: address, mnemonic, operands, and the node's op and name. `program` is the one it was
// emitted from.
std::string Disassemble(const CompactProgram& compact, const Program& program);

}  // namespace kiln
