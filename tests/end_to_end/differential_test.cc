// The oracle: interpreter = generic plan = exact plan, on random programs through the real services. Plans are fetched
// from the store, so that the path of another worker is the one that is tested.
#include <gtest/gtest.h>

#include <set>

#include "common/numeric/difference.h"
#include "tests/end_to_end/compiled_services.h"
#include "tests/support/random_program.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {
namespace {

class DifferentialTest : public testing::CompiledServicesTest {};

struct Counts {
  int compared = 0, refused = 0;
  std::set<std::string> reasons;
};

// Every plan of a program must agree with the interpreter at several symbol values, 0 and 1 among them.
void CompareProgram(onnx_test::CompiledServices& services, uint64_t seed, cli::StrictTier tier, Counts& counts) {
  testing::RandomProgramOptions options;
  options.only_f32 = seed % 3 != 0;
  options.odd_names = false;
  const Program program = testing::RandomProgram(seed, options);
  auto loaded = LoadedProgram::Load(program);
  ASSERT_TRUE(loaded.has_value()) << "seed " << seed << ": " << ToString(loaded.error());
  auto compiled = services.Mode(tier).load(program);
  ASSERT_TRUE(compiled.has_value());
  VmContext context;
  for (uint64_t round = 0; round < 4; ++round) {
    const std::vector<int64_t> values = round < 2 ? testing::SymbolValuesNear(program, static_cast<int64_t>(round))
                                                  : testing::RandomSymbolValues(program, seed * 16 + round);
    const std::vector<Tensor> inputs = testing::RandomInputs(program, values, seed * 16 + round);
    std::vector<TensorRef> refs;
    for (const Tensor& input : inputs) refs.push_back(input.ref);
    auto expected = context.Run(**loaded, refs);
    auto actual = (*compiled)->Run(refs);
    if (!expected.has_value()) {
      EXPECT_FALSE(actual.has_value()) << "seed " << seed << ": the interpreter refuses, the plan answers";
      continue;
    }
    if (!actual.has_value()) {
      ++counts.refused;
      counts.reasons.insert(actual.error().message);
      continue;
    }
    ASSERT_EQ(expected->size(), actual->size());
    const std::vector<ErrorBound> bounds = OutputErrorBounds((*loaded)->program(), {}, NumericMode::kDefault);
    for (size_t i = 0; i < expected->size(); ++i) {
      const auto difference = FirstDifference((*expected)[i].ref, (*actual)[i].ref, bounds[i]);
      EXPECT_FALSE(difference.has_value())
          << "seed " << seed << " round " << round << " output " << i << ": " << *difference;
    }
    ++counts.compared;
  }
}

TEST_F(DifferentialTest, GenericPlansAgreeWithTheInterpreter) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 60 && !HasFatalFailure(); ++seed)
    CompareProgram(*services_, seed, cli::StrictTier::kGeneric, counts);
  std::printf("generic: %d runs compared, %d not compiled\n", counts.compared, counts.refused);
  for (const std::string& reason : counts.reasons) std::printf("  %s\n", reason.c_str());
  EXPECT_EQ(counts.refused, 0);
  EXPECT_GE(counts.compared, 200);  // of 60 programs at 4 sizes
}

TEST_F(DifferentialTest, ExactPlansAgreeWithTheInterpreter) {
  Counts counts;
  for (uint64_t seed = 101; seed <= 130 && !HasFatalFailure(); ++seed)
    CompareProgram(*services_, seed, cli::StrictTier::kExact, counts);
  std::printf("exact: %d runs compared, %d not compiled\n", counts.compared, counts.refused);
  for (const std::string& reason : counts.reasons) std::printf("  %s\n", reason.c_str());
  EXPECT_EQ(counts.refused, 0);
  EXPECT_GE(counts.compared, 100);  // of 30 programs at 4 sizes
}

}  // namespace
}  // namespace kiln
