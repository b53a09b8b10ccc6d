// What compares whole answers says of a model that draws random numbers that it cannot; what compares segments can.
#include "tests/cli/kiln_command.h"

namespace kiln {
namespace {

using ::testing::AllOf;
using ::testing::Not;

class RandomModel : public KilnCommand {
 protected:
  void SetUp() override {
    KilnCommand::SetUp();
    onnx::TestModel model(22);
    model.Input(onnx::Tensor32("x", {"n"}));
    onnx::AddNode(*model.graph().mutable_node(), "RandomNormalLike", {"x"}, {"noise"}).set_name("noise7");
    model.Node("Mul", {"x", "noise"}, {"scaled"}).Node("Exp", {"scaled"}, {"y"}).Output("y");
    std::ofstream(directory_ / "model.onnx", std::ios::binary) << model.Bytes();
  }
};

TEST_F(RandomModel, RunAnswersAndCheckNamesTheNode) {
  EXPECT_EQ(Kiln("run " + Path("model.onnx") + " --dim x.0=3 --repeat 20").status, 0);
  const ShellRun check = Kiln("run " + Path("model.onnx") + " --dim x.0=3 --check");
  EXPECT_EQ(check.status, 2) << check.output;
  EXPECT_THAT(check.output, AllOf(HasSubstr("--check"), HasSubstr("RandomNormal \"noise7\" draws random numbers"),
                                  HasSubstr("--compare")));
  const ShellRun compare = Kiln("run " + Path("model.onnx") + " --dim x.0=300 --compare --replay " + Path("r.json"));
  EXPECT_EQ(compare.status, 0) << compare.output;
  EXPECT_THAT(compare.output, AllOf(HasSubstr("generic plans: 1 segment calls compared, 0 differ, 0 without a plan"),
                                    HasSubstr("exact plans: 1 segment calls compared, 0 differ, 0 without a plan")));
}

TEST_F(RandomModel, TheJobSaysSoBeforeItStarts) {
  const ShellRun job = Kiln("job --model " + Path("model.onnx") + " --lines " + directory_.string() +
                            " --worker ipc://" + Path("nobody"));
  EXPECT_EQ(job.status, 2) << job.output;
  EXPECT_THAT(job.output, AllOf(HasSubstr("model.onnx"), HasSubstr("draws random numbers")));
}

// Types and shapes are held to the vectors in both modes, values are not.
TEST_F(RandomModel, OnnxTestSkipsItAndStillChecksItsForm) {
  ShellRun run = Kiln("onnx-test --dynamic " + directory_.string());
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("draws random numbers"), HasSubstr("0 passed, 0 failed, 2 skipped")));
  const std::vector<float> three = {1, 2, 3};
  const Tensor tensor = Tensor::Of<float>(DType::kF32, Dims{3}, std::span<const float>(three));
  ASSERT_TRUE(onnx::WriteTensorFile(directory_ / "test_data_set_0" / "output_0.pb", {"y", tensor}).has_value());
  run = Kiln("onnx-test --mode interpreted " + directory_.string());
  EXPECT_EQ(run.status, 1) << run.output;
  EXPECT_THAT(run.output, HasSubstr("has shape [2], expected [3]"));
}

}  // namespace
}  // namespace kiln
