// A kernel that computes something else than its plan says: compare mode names the step, a worker's shadow check keeps
// it from ever answering.
#include "tests/end_to_end/fleet_fixture.h"
#include "tests/end_to_end/publish_plan.h"
#include "tests/end_to_end/seeded_plan.h"
#include "vm-worker/dispatch/perf_map.h"

namespace kiln {
namespace {

using testing::Eventually;
using testing::SmallModel;

class SeededFault : public testing::FleetTest {
 protected:
  SmallModel model_;
  testing::SeededPlan seeded_;
};

TEST_F(SeededFault, IsNamedByCompareAndNeverAnswersARequest) {
  auto services = onnx_test::CompiledServices::Start(directory_ + "-right", KILN_BIN_DIR);
  ASSERT_TRUE(services.has_value()) << ToString(services.error());
  ASSERT_NO_FATAL_FAILURE(testing::SeedPlan(**services, model_, seeded_));

  PackedWeights packer(InterpretRecipe);
  const std::vector<std::span<const uint8_t>> blobs(seeded_.code.begin(), seeded_.code.end());
  const std::shared_ptr<const CodeMapping> code =
      CodeMapping::Map(seeded_.plan.kernels, blobs, HostTargets().front()).value();
  cli::CompareHook hook([&](const SegmentEntry& entry, const Segment& segment, const std::vector<int64_t>&) {
    return LinkedPlan::Link(std::make_shared<const Plan>(seeded_.plan), ComputePlanKey(seeded_.plan), segment, code,
                            entry.weights, packer);
  });
  testing::RunWithHook(model_, hook);
  ASSERT_EQ(hook.findings().size(), 1u);
  ASSERT_TRUE(hook.findings()[0].difference.step.has_value());
  EXPECT_EQ(hook.findings()[0].difference.step->step, static_cast<size_t>(seeded_.wrong_step));

  (*PerfMap::Open(directory_ + "/perf.map"))->Add("m", seeded_.plan, *code);
  std::ifstream perf(directory_ + "/perf.map");
  size_t lines = 0;
  for (std::string line; std::getline(perf, line); ++lines)
    EXPECT_NE(line.find(" kiln m: "), std::string::npos) << line;
  EXPECT_EQ(lines, seeded_.plan.kernels.size());

  ASSERT_NO_FATAL_FAILURE(testing::PublishPlan(*loop_, *fleet_, seeded_.plan, seeded_.code));
  fleet_->StopCompile();  // so that nothing replaces the plan
  RpcClient* worker = StartWorker({"--model", "m=" + model_.WriteTo(directory_)});
  int64_t asked = 0, wrong_answers = 0;
  const bool found = Eventually([&] {
    const int64_t rows = 1 + asked++ % 9;
    const auto reply = CallRun(*worker, {"m", {{"x", model_.Input(rows)}}}, 10'000);
    EXPECT_TRUE(reply.has_value());
    if (reply.has_value() && model_.Difference(rows, reply->outputs.at(0).tensor) != "") ++wrong_answers;
    return CallStats(*worker, {}, 5'000)->Value("shadow_mismatches") > 0;
  });
  EXPECT_TRUE(found) << asked << " requests";
  for (int64_t rows = 1; rows < 30; ++rows) {
    const auto reply = CallRun(*worker, {"m", {{"x", model_.Input(rows)}}}, 10'000);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->timing.plan_segments, 0u);
    if (model_.Difference(rows, reply->outputs.at(0).tensor) != "") ++wrong_answers;
  }
  EXPECT_EQ(wrong_answers, 0);
  EXPECT_EQ(CallStats(*worker, {}, 5'000)->Value("quarantined"), 1u);
}

}  // namespace
}  // namespace kiln
