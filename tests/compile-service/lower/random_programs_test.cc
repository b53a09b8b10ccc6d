// Random programs: every segment, lowered generically and exactly, gives what the interpreter gives.
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/bytecode/program_text.h"
#include "tests/compile-service/lower/check_program.h"
#include "tests/compile-service/lower/compiled_runner.h"
#include "tests/support/random_program.h"

namespace kiln::testing {
namespace {

uint64_t BaseSeed() {
  const char* seed = std::getenv("KILN_TEST_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

// `compiled`: the runner of the host's kernels, or null for naive evaluation on several targets.
void CheckPrograms(int first, int count, bool only_f32, CompiledRunner* compiled) {
  int lowered = 0, tried = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = BaseSeed() * 1000 + static_cast<uint64_t>(first + i);
    const Program program = RandomProgram(seed, {.nodes = 10, .odd_names = false, .only_f32 = only_f32});
    for (const SegmentSite& site : FindSegments(program)) {
      const Result<Segment> segment = CanonicalSegment(program, site);
      ASSERT_TRUE(segment.has_value()) << ToString(segment.error());
      if (segment->parameters > 0) continue;  // values of parameters are the model's to say
      ++tried;
      SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + PrintProgram(segment->body));
      CheckOptions options{.targets = {i % 2 == 0 ? Target::kX86V4 : Target::kX86V2}};
      if (compiled != nullptr) {
        options.targets = {HostTargets().front()};
        options.exact = false;
        options.runner = [&](Target) { return compiled->runner(); };
      }
      for (uint64_t k = 0; k < 4; ++k) {
        std::vector<int64_t> shape;
        const std::vector<int64_t> values =
            k == 0 ? SymbolValuesNear(segment->body, 3) : RandomSymbolValues(segment->body, seed + k);
        for (size_t s = 0; s < segment->symbols.size(); ++s) {
          if (segment->symbols[s].kind != SymbolSource::Kind::kValueDim) shape.push_back(values[s]);
        }
        options.shapes.push_back(std::move(shape));
      }
      options.accept_unsupported = true;
      options.ranges = true;
      lowered += !CheckSegment(*segment, options).plan.outputs.empty();
      if (::testing::Test::HasFailure()) return;
    }
  }
  // Few segments may be out of reach (half floats moved about, shapes that no symbol names).
  EXPECT_GE(lowered * 10, tried * 7) << lowered << " of " << tried;
}

class RandomProgramsTest : public ::testing::TestWithParam<int> {};

TEST_P(RandomProgramsTest, PlansGiveWhatTheInterpreterGives) {
  CheckPrograms(GetParam() * 40, 40, GetParam() % 2 == 0, nullptr);
}

TEST_P(RandomProgramsTest, CompiledPlansGiveWhatTheInterpreterGives) {
  if (HostTargets().empty()) GTEST_SKIP() << "no target for this host";
  CompiledRunner compiled(HostTargets().front());
  CheckPrograms(500 + GetParam() * 10, 10, GetParam() % 2 == 0, &compiled);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomProgramsTest, ::testing::Range(0, 6));

}  // namespace
}  // namespace kiln::testing
