// Compare mode: a wrong step is found, named and written to a replay file that shows it again.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "cli/compare/compare_hook.h"
#include "cli/compare/compare_run.h"
#include "cli/compare/replay_file.h"
#include "tests/support/temp_directory.h"
#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::cli {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTwoNodes = R"(program "p" {
  symbol n in [0, 4096]
  func main(%x: f32[n, 4]) -> (%y) {
    %r : f32[n, 4] = Relu(%x)
    %y : f32[n, 4] = Neg(%r)
  }
})";

std::shared_ptr<const LoadedProgram> TwoNodes() {
  static const auto program = LoadedProgram::Load(ParseProgram(kTwoNodes).value()).value();
  return program;
}

// y = second(first(x)) in two steps; the segment wants Neg(Relu(x)).
std::shared_ptr<const LinkedPlan> TwoSteps(TensorOp first, TensorOp second) {
  const Segment& segment = TwoNodes()->segments()[0];
  Plan plan = testing::ReluPlan(0, 4096);
  plan.segment = segment.id;
  plan.symbols = segment.body.symbols;
  const Dim n = plan.symbols.SymbolDim(0), four = Dim::Const(4), one = Dim::Const(1);
  plan.values.push_back({StorageKind::kArena, 0, DType::kF32, Dim::Const(0), {n, four}, {four, one}});
  plan.buffers = {{plan.symbols.Mul(n, Dim::Const(16)), 0, 1}};
  plan.steps = {{ReferenceStep{first, {}, {0}, {2}}, {0}, "first"},
                {ReferenceStep{second, {}, {2}, {1}}, {1}, "second"}};
  PackedWeights packer(
      [](const Program&, std::span<const TensorRef>) -> Result<Tensor> { return Fail(ErrorCode::kInternal, ""); });
  const PlanKey key = ComputePlanKey(plan);
  std::shared_ptr<const CodeMapping> code = CodeMapping::Map({}, {}, HostTargets().front()).value();
  auto linked = LinkedPlan::Link(std::make_shared<const Plan>(std::move(plan)), key, segment, code, {}, packer);
  EXPECT_TRUE(linked.has_value()) << (linked.has_value() ? "" : ToString(linked.error()));
  return linked.value();
}

Tensor Input() {
  const std::vector<float> x = {1, 2, -3, 4, 5, -6, 7, -8};
  return Tensor::Of<float>(DType::kF32, {2, 4}, x);
}

TEST(CompareCase, ACorrectPlanAgrees) {
  const auto difference = CompareCase({TwoSteps(TensorOp::kRelu, TensorOp::kNeg), {Input()}, {}});
  ASSERT_TRUE(difference.has_value()) << ToString(difference.error());
  EXPECT_FALSE(difference->has_value());
}

TEST(CompareCase, NamesTheFirstWrongStepWithNodeElementAndBothValues) {
  const struct {
    TensorOp first, second;
    size_t step;
    const char* detail;
  } cases[] = {{TensorOp::kAbs, TensorOp::kNeg, 0, "differs at [0, 2]: 3, expected 0 (3 of 8 elements differ)"},
               {TensorOp::kRelu, TensorOp::kAbs, 1, "differs at [0, 0]: 1, expected -1 (5 of 8 elements differ)"}};
  for (const auto& wrong : cases) {
    const auto difference = CompareCase({TwoSteps(wrong.first, wrong.second), {Input()}, {}});
    ASSERT_TRUE(difference.has_value() && difference->has_value());
    EXPECT_THAT((*difference)->detail, HasSubstr("output 0 differs at ["));
    ASSERT_TRUE((*difference)->step.has_value());
    EXPECT_EQ((*difference)->step->step, wrong.step);
    EXPECT_EQ((*difference)->step->node, static_cast<int32_t>(wrong.step));
    EXPECT_EQ((*difference)->step->detail, wrong.detail);
  }
}

TEST(CompareHook, FindsTheWrongPlanWhileTheRunKeepsTheRightAnswer) {
  CompareHook hook([](const SegmentEntry&, const Segment&,
                      const std::vector<int64_t>&) -> Result<std::shared_ptr<const LinkedPlan>> {
    return TwoSteps(TensorOp::kRelu, TensorOp::kAbs);
  });
  const Tensor x = Input();
  VmContext context;
  RunOptions options;
  options.hook = &hook;
  for (int i = 0; i < 3; ++i) {
    const auto outputs = context.Run(*TwoNodes(), {&x.ref, 1}, options);
    ASSERT_TRUE(outputs.has_value());
    EXPECT_EQ((*outputs)[0].ref.as<float>()[0], -1.0f);
  }
  EXPECT_EQ(hook.compared(), 1) << "one signature is compared once";
  ASSERT_EQ(hook.findings().size(), 1u);
  EXPECT_EQ(hook.findings()[0].difference.step->step, 1u);
}

class ReplayFile : public ::testing::Test {
 protected:
  std::string Text() const {
    std::ifstream stream(path_);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  const testing::TempDirectory directory_;
  const std::string path_ = directory_.path() + "/replay.json";
  const SegmentCase wrong_{TwoSteps(TensorOp::kAbs, TensorOp::kNeg), {Input()}, {}};
};

TEST_F(ReplayFile, HoldsShapesAndASeedAndShowsTheFaultAlone) {
  ASSERT_TRUE(WriteReplay(path_, {"m", 0, "what was found", 7, false}, wrong_).has_value());
  EXPECT_EQ(Text().find("\"values\""), std::string::npos) << "no tensor value leaves unless asked for";
  const auto replay = ReadReplay(path_);
  ASSERT_TRUE(replay.has_value()) << ToString(replay.error());
  EXPECT_EQ((*replay)->text.difference, "what was found");
  EXPECT_EQ((*replay)->call.inputs.at(0).dims(), (Dims{2, 4}));
  const auto difference = CompareCase((*replay)->call);
  ASSERT_TRUE(difference.has_value() && difference->has_value());
  EXPECT_EQ((*difference)->step->step, 0u);
}

TEST_F(ReplayFile, KeepsTheVeryValuesWhenAsked) {
  ASSERT_TRUE(WriteReplay(path_, {"m", 0, "", 7, true}, wrong_).has_value());
  const auto replay = ReadReplay(path_);
  ASSERT_TRUE(replay.has_value()) << ToString(replay.error());
  EXPECT_EQ((*replay)->call.inputs.at(0).ref.as<float>()[7], -8.0f);
}

TEST_F(ReplayFile, AFindingIsPrintedLineByLine) {
  ASSERT_TRUE(WriteReplay(path_, {"m", 0, "what was found", 7, true}, wrong_).has_value());
  ::testing::internal::CaptureStdout();
  const auto status = RunReplay(path_);
  const std::string text = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.has_value()) << ToString(status.error());
  EXPECT_EQ(*status, 1);
  EXPECT_THAT(text, HasSubstr("    first difference in step 0 of 2: first (reference step)\n"
                              "      value of Relu: differs at [0, 2]: 3, expected 0 (3 of 8 elements differ)\n"));
  EXPECT_EQ(text.find('\\'), std::string::npos) << text;
}

TEST_F(ReplayFile, ADamagedFileIsAnError) {
  ASSERT_TRUE(WriteReplay(path_, {"m", 0, "", 7, true}, wrong_).has_value());
  const std::string text = Text();
  for (const size_t cut : {size_t{0}, text.size() / 3, text.size() - 4}) {
    std::ofstream(path_) << text.substr(0, cut);
    EXPECT_FALSE(ReadReplay(path_).has_value()) << "cut at " << cut;
  }
  std::string other = text;
  const size_t plan = other.find("\"plan\": \"") + 40;
  other[plan] = other[plan] == '0' ? '1' : '0';
  std::ofstream(path_) << other;
  const auto damaged = ReadReplay(path_);
  if (damaged.has_value()) {
    EXPECT_TRUE(CompareCase((*damaged)->call).has_value());
  }
  EXPECT_EQ(ReadReplay(path_ + ".absent").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace kiln::cli
