// One oracle: variant form = static form = segments run alone, bit for bit, on random programs, shapes and strides.
#include <map>

#include "tests/support/random_program.h"
#include "tests/vm-worker/interp/run_text.h"
#include "tests/vm-worker/interp/strided.h"

namespace kiln {
namespace {

// Runs every segment from its canonical form in a context of its own, as a shadow check does.
class AloneHook : public SegmentHook {
 public:
  SegmentVerdict Enter(const SegmentEntry& entry) override {
    const Segment& segment = entry.program->segments()[static_cast<size_t>(entry.segment)];
    auto& body = bodies_[segment.id];
    if (!body) {
      auto bytes = EncodeSegment(segment);
      EXPECT_TRUE(bytes.has_value());
      auto decoded = DecodeSegment(*bytes);
      EXPECT_TRUE(decoded.has_value()) << ToString(decoded.error());
      EXPECT_EQ(decoded->id, segment.id);
      auto loaded = LoadSegmentBody(*decoded, {.verify_code = true});
      EXPECT_TRUE(loaded.has_value()) << ToString(loaded.error());
      body = *loaded;
    }
    auto outputs = RunSegment(context_, *body, segment, entry.inputs, entry.weights, entry.parameters);
    if (!outputs) {
      failures.push_back(ToString(outputs.error()));
      return SegmentVerdict::kInterpret;
    }
    EXPECT_EQ(outputs->size(), entry.outputs.size());
    for (size_t i = 0; i < outputs->size(); ++i) {
      const TensorRef& from = (*outputs)[i].ref;
      entry.outputs[i] =
          MakeRef(from.dtype, from.dims, entry.memory->AllocateOutput(i, static_cast<size_t>(from.bytes())));
      CopyElements(from, entry.outputs[i]);
    }
    ++executed;
    return SegmentVerdict::kExecuted;
  }
  void Leave(const SegmentEntry&, int64_t) override {}

  int executed = 0;
  std::vector<std::string> failures;

 private:
  VmContext context_;
  std::map<SegmentId, std::shared_ptr<const LoadedProgram>> bodies_;
};

void ExpectSame(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].dims(), b[i].dims()) << "output " << i;
    EXPECT_EQ(0, std::memcmp(a[i].ref.data, b[i].ref.data, static_cast<size_t>(a[i].ref.bytes()))) << "output " << i;
  }
}

void CheckSeed(uint64_t seed, const testing::RandomProgramOptions& options, int* executed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  auto loaded = LoadedProgram::Load(testing::RandomProgram(seed, options), {.verify_code = true});
  ASSERT_TRUE(loaded.has_value()) << ToString(loaded.error());
  const Program& program = (*loaded)->program();
  VmContext context;
  std::vector<std::vector<int64_t>> shapes{testing::SymbolValuesNear(program, 0),
                                           testing::SymbolValuesNear(program, 1)};
  for (uint64_t i = 0; i < 3; ++i) shapes.push_back(testing::RandomSymbolValues(program, seed * 31 + i));
  for (const std::vector<int64_t>& values : shapes) {
    const std::vector<Tensor> tensors = testing::RandomInputs(program, values, seed);
    std::vector<TensorRef> inputs, spread;
    std::vector<Tensor> memory(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      inputs.push_back(tensors[i].ref);
      spread.push_back(Spread(tensors[i].ref, &memory[i]));
    }
    const auto outputs = RunEveryWay(context, **loaded, inputs, values);
    ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error()) << "\n" << PrintProgram(program);
    const auto from_spread = RunEveryWay(context, **loaded, spread, values);
    ASSERT_TRUE(from_spread.has_value()) << ToString(from_spread.error());
    ExpectSame(*outputs, *from_spread);
    AloneHook hook;
    const auto alone = context.Run(**loaded, inputs, {.hook = &hook, .symbols = values});
    ASSERT_TRUE(alone.has_value()) << ToString(alone.error());
    EXPECT_EQ(hook.failures, std::vector<std::string>());
    ExpectSame(*outputs, *alone);
    *executed += hook.executed;
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(RandomPrograms, AgreeInEveryForm) {
  int executed = 0;
  for (uint64_t seed = 1; seed <= 120 && !HasFailure(); ++seed) CheckSeed(seed, {}, &executed);
  EXPECT_GT(executed, 500);
}

TEST(RandomPrograms, StraightLinesAgreeInEveryForm) {
  int executed = 0;
  const testing::RandomProgramOptions options{.nodes = 40, .control_flow = false, .data_dependent = false};
  for (uint64_t seed = 1000; seed < 1060 && !HasFailure(); ++seed) CheckSeed(seed, options, &executed);
  EXPECT_GT(executed, 250);
}

}  // namespace
}  // namespace kiln
