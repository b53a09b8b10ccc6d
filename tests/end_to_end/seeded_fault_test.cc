// A kernel that computes something else than its plan says: compare mode names the step, a worker's shadow check keeps
// it from ever answering.
#include "cli/compare/compare_hook.h"
#include "cli/onnx_test/compiled_runner.h"
#include "tests/end_to_end/fleet_fixture.h"
#include "tests/end_to_end/publish_plan.h"
#include "tests/end_to_end/small_model.h"
#include "vm-worker/dispatch/perf_map.h"
#include "vm-worker/dispatch/segment_call.h"

namespace kiln {
namespace {

using testing::Eventually;
using testing::SmallModel;

class SeededFault : public testing::FleetTest {
 protected:
  // The compiled plan of the model's only segment.
  std::shared_ptr<const LinkedPlan> PlanOf(onnx_test::CompiledServices& services, const SmallModel& model) {
    std::shared_ptr<const LinkedPlan> plan;
    cli::CompareHook hook([&](const SegmentEntry& entry, const Segment& segment,
                              const std::vector<int64_t>& values) -> Result<std::shared_ptr<const LinkedPlan>> {
      ASSIGN_OR_RETURN(auto obtained,
                       cli::ObtainPlan(services.plan_services(), cli::StrictTier::kGeneric, entry, segment, values));
      plan = obtained.plan;
      return plan;
    });
    Run(model, hook);
    EXPECT_TRUE(hook.findings().empty()) << "the plan as it was compiled";
    EXPECT_NE(plan, nullptr);
    return plan;
  }
  void Run(const SmallModel& model, SegmentHook& hook) {
    const Tensor x = model.Input(5);
    VmContext context;
    RunOptions options;
    options.hook = &hook;
    EXPECT_TRUE(context.Run(*model.program(), {&x.ref, 1}, options).has_value());
  }

  // The plan of `model` with the code of `other`'s kernels: relu's plan runs |x|.
  void Seed(onnx_test::CompiledServices& services) {
    const SmallModel other(24, "Abs");
    const auto right = PlanOf(services, model_), wrong = PlanOf(services, other);
    ASSERT_TRUE(right != nullptr && wrong != nullptr);
    ASSERT_EQ(right->plan().kernels.size(), wrong->plan().kernels.size());
    ASSERT_EQ(right->plan().steps.size(), wrong->plan().steps.size());
    ASSERT_NE(right->plan().kernels, wrong->plan().kernels);
    for (size_t i = 0; i < wrong->code().kernels(); ++i)
      code_.emplace_back(wrong->code().blob(i).begin(), wrong->code().blob(i).end());
    plan_ = right->plan();
    plan_.kernels = wrong->plan().kernels;
    for (size_t i = 0; i < plan_.steps.size() && wrong_step_ < 0; ++i)
      if (const auto* step = std::get_if<KernelStep>(&plan_.steps[i].step))
        if (right->plan().kernels[static_cast<size_t>(step->kernel)] !=
            plan_.kernels[static_cast<size_t>(step->kernel)])
          wrong_step_ = static_cast<int>(i);
    ASSERT_GE(wrong_step_, 0);
  }

  SmallModel model_;
  Plan plan_;
  std::vector<Bytes> code_;
  int wrong_step_ = -1;
};

TEST_F(SeededFault, IsNamedByCompareAndNeverAnswersARequest) {
  auto services = onnx_test::CompiledServices::Start(directory_ + "-right", KILN_BIN_DIR);
  ASSERT_TRUE(services.has_value()) << ToString(services.error());
  ASSERT_NO_FATAL_FAILURE(Seed(**services));

  PackedWeights packer(InterpretRecipe);
  const std::vector<std::span<const uint8_t>> blobs(code_.begin(), code_.end());
  const std::shared_ptr<const CodeMapping> code = CodeMapping::Map(plan_.kernels, blobs, HostTargets().front()).value();
  cli::CompareHook hook([&](const SegmentEntry& entry, const Segment& segment, const std::vector<int64_t>&) {
    return LinkedPlan::Link(std::make_shared<const Plan>(plan_), ComputePlanKey(plan_), segment, code, entry.weights,
                            packer);
  });
  Run(model_, hook);
  ASSERT_EQ(hook.findings().size(), 1u);
  ASSERT_TRUE(hook.findings()[0].difference.step.has_value());
  EXPECT_EQ(hook.findings()[0].difference.step->step, static_cast<size_t>(wrong_step_));

  (*PerfMap::Open(directory_ + "/perf.map"))->Add("m", plan_, *code);
  std::ifstream perf(directory_ + "/perf.map");
  size_t lines = 0;
  for (std::string line; std::getline(perf, line); ++lines)
    EXPECT_NE(line.find(" kiln m: "), std::string::npos) << line;
  EXPECT_EQ(lines, plan_.kernels.size());

  ASSERT_NO_FATAL_FAILURE(testing::PublishPlan(*loop_, *fleet_, plan_, code_));
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
