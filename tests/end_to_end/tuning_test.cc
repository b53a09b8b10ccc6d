// The tuned tier in a fleet of real processes: one worker's hot plan is measured once, and every worker has the winner.
#include "common/artifact/target.h"
#include "common/worker_api/explain.h"
#include "tests/end_to_end/fleet_fixture.h"
#include "tests/end_to_end/small_model.h"

namespace kiln {
namespace {

using testing::Eventually;
using testing::SmallModel;

class TuningTest : public testing::FleetTest {
 protected:
  bool Ask(RpcClient& worker, int64_t rows) {
    const auto reply = CallRun(worker, {"m", {{"x", model_.Input(rows)}}}, 10'000);
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
    if (!reply.has_value()) return false;
    EXPECT_EQ(model_.Difference(rows, reply->outputs.at(0).tensor), "");
    return reply->timing.plan_segments > 0;
  }
  // The published tuned plan of the model's segment, if there is one.
  std::optional<ExplainedPlan> Tuned(RpcClient& worker) {
    const auto reply = CallExplain(worker, {.model = "m"}, 10'000);
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
    if (!reply.has_value()) return std::nullopt;
    for (const ExplainedSegment& segment : reply->segments)
      for (const ExplainedPlan& plan : segment.plans)
        if (plan.tier == "tuned" && plan.state == "published") return plan;
    return std::nullopt;
  }
  SmallModel model_{40};
};

TEST_F(TuningTest, ASecondWorkerHasTheTunedPlanWithoutCompiling) {
  if (HostTargets().empty()) GTEST_SKIP() << "no kernels are made for this processor";
  const std::string path = model_.WriteTo(directory_);
  // Any core will do: which tile wins is not this test's question.
  fleet_->StopCompile();
  ASSERT_TRUE(fleet_->StartCompile({"--tune-idle-share", "0"}).has_value());
  RpcClient* first = StartWorker({"--tuned", "--horizon-s", "100000000", "--model", "m=" + path});
  std::optional<ExplainedPlan> plan;
  int64_t rows = 0;
  ASSERT_TRUE(Eventually([&] {
    for (int i = 0; i < 64; ++i) Ask(*first, 1 + rows++ % 9);
    plan = Tuned(*first);
    return plan.has_value();
  }));
  ASSERT_FALSE(plan->tuning.empty());
  EXPECT_NE(plan->tuning[0].find("(taken)"), std::string::npos) << plan->tuning[0];
  EXPECT_TRUE(Ask(*first, 123));

  fleet_->StopCompile();
  RpcClient* second = StartWorker({"--model", "m=" + path});
  ASSERT_TRUE(Eventually([&] { return Ask(*second, 77); }, 5'000));
  const std::optional<ExplainedPlan> same = Tuned(*second);
  ASSERT_TRUE(same.has_value());
  EXPECT_EQ(same->key, plan->key);
  EXPECT_EQ(same->tuning, plan->tuning) << "the measurements came with it";
  EXPECT_EQ(CallStats(*second, {}, 5'000)->Value("compiled"), 0u);
}

}  // namespace
}  // namespace kiln
