#include "tests/fuzz/program_checks.h"

#include <cstdio>

#include "common/base/check.h"
#include "common/bytecode/program_codec.h"
#include "common/bytecode/program_text.h"
#include "tests/support/random_program.h"
#include "vm-worker/interp/loaded_program.h"

namespace kiln::fuzz {
namespace {

// Programs that are well formed and still cannot be run: for want of a kernel, for a limit, for ops that give other
// sizes than the program states, and for what the rule of a node that every run passes says of its sizes or constants.
bool MayFailToLoad(ErrorCode code) {
  return code == ErrorCode::kUnsupported || code == ErrorCode::kLimitExceeded || code == ErrorCode::kShapeMismatch ||
         code == ErrorCode::kInvalidArgument;
}

}  // namespace

void ExpectOf(const Program& program, const std::string& wrong) {
  if (wrong.empty()) return;
  std::fprintf(stderr, "%s\n%s\n", PrintProgram(program).c_str(), wrong.c_str());
  KILN_CHECK(wrong.empty());
}

void CheckForms(const Program& program) {
  KILN_CHECK(VerifyProgram(program).has_value());
  const std::string text = PrintProgram(program);
  const auto parsed = ParseProgram(text);
  KILN_CHECK(parsed.has_value());
  KILN_CHECK(testing::DifferenceOf(program, *parsed).empty());
  const auto bytes = EncodeProgram(program);
  KILN_CHECK(bytes.has_value());
  const auto decoded = DecodeProgram(*bytes);
  KILN_CHECK(decoded.has_value());
  KILN_CHECK(testing::DifferenceOf(program, *decoded).empty());
}

std::shared_ptr<const LoadedProgram> CheckLoads(const Program& program) {
  const auto loaded = LoadedProgram::Load(program, {.verify_code = true});
  if (!loaded) {
    if (!MayFailToLoad(loaded.error().code)) ExpectOf(program, ToString(loaded.error()));
    return nullptr;
  }
  for (const Segment& segment : (*loaded)->segments()) {
    const auto bytes = EncodeSegment(segment);
    KILN_CHECK(bytes.has_value());
    const auto decoded = DecodeSegment(*bytes);
    KILN_CHECK(decoded.has_value() && decoded->id == segment.id);
  }
  return *loaded;
}

}  // namespace kiln::fuzz
