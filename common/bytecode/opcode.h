// Opcodes of the compact form: one append-only table (opcodes.def) with the operand format of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln {

enum class Opcode : uint8_t {
#define KILN_OPCODE(value, name, mnemonic, format, family, doc) k##name = value,
#include "common/bytecode/opcodes.def"
#undef KILN_OPCODE
};

enum class OpcodeFamily : uint8_t { kLifecycle, kShape, kCompute, kControl, kCalls };

struct OpcodeInfo {
  Opcode opcode;
  std::string_view mnemonic;
  std::string_view format;  // letters as described at the head of opcodes.def
  OpcodeFamily family;
  std::string_view doc;
};

// Row of an opcode. Precondition: a value of the enum (see OpcodeFromNumber).
const OpcodeInfo& InfoOf(Opcode opcode);
std::optional<Opcode> OpcodeFromNumber(uint32_t number);
int OpcodeCount();
const OpcodeInfo& OpcodeRow(int index);

}  // namespace kiln
