#include "common/bytecode/opcode.h"

#include <array>
#include <iterator>

namespace kiln {
namespace {

constexpr OpcodeInfo kRows[] = {
#define KILN_OPCODE(value, name, mnemonic, format, family, doc) \
  {Opcode::k##name, mnemonic, format, OpcodeFamily::k##family, doc},
#include "common/bytecode/opcodes.def"
#undef KILN_OPCODE
};
constexpr int kRowCount = static_cast<int>(std::size(kRows));

// Row index by opcode value, -1 where no opcode has the value.
constexpr std::array<int8_t, 256> RowIndex() {
  std::array<int8_t, 256> index{};
  index.fill(-1);
  for (int i = 0; i < kRowCount; ++i) index[static_cast<size_t>(kRows[i].opcode)] = static_cast<int8_t>(i);
  return index;
}
constexpr std::array<int8_t, 256> kRowOf = RowIndex();

}  // namespace

const OpcodeInfo& InfoOf(Opcode opcode) {
  return kRows[kRowOf[static_cast<size_t>(opcode)]];
}

std::optional<Opcode> OpcodeFromNumber(uint32_t number) {
  if (number >= kRowOf.size() || kRowOf[number] < 0) return std::nullopt;
  return static_cast<Opcode>(number);
}

int OpcodeCount() {
  return kRowCount;
}
const OpcodeInfo& OpcodeRow(int index) {
  return kRows[index];
}

}  // namespace kiln
