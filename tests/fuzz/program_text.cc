// What parses prints and encodes as the same program.
#include "common/bytecode/program_text.h"

#include "common/base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/program_checks.h"

namespace kiln::fuzz {

void ProgramText(std::span<const uint8_t> bytes) {
  const auto program = ParseProgram(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (!program) {
    KILN_CHECK(!program.error().message.empty());
    return;
  }
  CheckForms(*program);
}

}  // namespace kiln::fuzz
