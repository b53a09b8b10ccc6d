// Edits of a program, chosen by bytes: the result is mostly wrong, and what the verifier lets pass is close to wrong.
#pragma once

#include <cstdint>
#include <span>

#include "common/bytecode/program.h"

namespace kiln::fuzz {

// Decisions from the bytes of a fuzzer's input; zeros once they are used up.
class Choices {
 public:
  explicit Choices(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }
  uint8_t Byte();
  uint64_t Word();
  size_t Below(size_t count) { return count == 0 ? 0 : (Byte() | size_t{Byte()} << 8) % count; }

 private:
  std::span<const uint8_t> bytes_;
};

// One edit of the entry function or a constant. Constants that change become copies of their own.
void EditProgram(Program& program, Choices& choices);

}  // namespace kiln::fuzz
