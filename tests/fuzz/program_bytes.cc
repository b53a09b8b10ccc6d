// What decodes is a program like any other.
#include "common/base/check.h"
#include "common/bytecode/program_codec.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/program_checks.h"

namespace kiln::fuzz {

void ProgramBytes(std::span<const uint8_t> bytes) {
  const auto program = DecodeProgram(bytes);
  if (!program) {
    KILN_CHECK(!program.error().message.empty());
    return;
  }
  CheckForms(*program);
  CheckLoads(*program);
}

}  // namespace kiln::fuzz
