// A worker with too little memory for packed weights in a fleet of real processes: its plans read them as the model
// holds them, others of its kind have those plans without compiling, and a larger worker has the packed ones.
#include "common/artifact/target.h"
#include "common/artifact/weight_form.h"
#include "common/base/memory_budget.h"
#include "common/worker_api/explain.h"
#include "tests/end_to_end/fleet_fixture.h"
#include "tests/end_to_end/small_model.h"
#include "vm-worker/tiering/miss_reasons.h"

namespace kiln {
namespace {

using testing::Eventually;
using testing::SmallModel;

// 24 MiB of weights.
constexpr int64_t kInner = 2048, kColumns = 3072;
const std::vector<std::string> kSmall = {"--memory-bytes", std::to_string(int64_t{18} << 20)};

class GivenWeightsTest : public testing::FleetTest {
 protected:
  // Whether a plan answered; the answer is checked.
  bool Ask(RpcClient& worker, int64_t rows) {
    const auto reply = CallRun(worker, {"m", {{"x", model_.Input(rows)}}}, 10'000);
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
    if (!reply.has_value()) return false;
    EXPECT_EQ(model_.Difference(rows, reply->outputs.at(0).tensor), "");
    return reply->timing.plan_segments > 0;
  }
  bool AnswersByPlan(RpcClient& worker) {
    int64_t rows = 0;
    return Eventually([&] { return Ask(worker, 1 + rows++ % 4); });
  }
  ExplainedSegment Explain(RpcClient& worker) {
    const auto reply = CallExplain(worker, {.model = "m"}, 10'000);
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
    return reply.has_value() && !reply->segments.empty() ? reply->segments.front() : ExplainedSegment{};
  }
  static bool Says(const std::vector<std::string>& lines, const std::string& text) {
    return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }
  std::vector<std::string> Flags(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--model", "m=" + model_.WriteTo(directory_)});
    return more;
  }
  SmallModel model_{kColumns, "Relu", false, kInner};
};

TEST_F(GivenWeightsTest, AnswerWherePackedOnesHaveNoRoom) {
  if (HostTargets().empty()) GTEST_SKIP() << "no kernels are made for this processor";
  RpcClient* first = StartWorker(Flags(kSmall));
  ASSERT_TRUE(AnswersByPlan(*first));
  const ExplainedSegment segment = Explain(*first);
  ASSERT_EQ(segment.plans.size(), 1u);
  EXPECT_EQ(segment.plans[0].weights, WeightFormText(WeightForm::kAsGiven));
  EXPECT_EQ(segment.plans[0].reference_steps, 0u);
  EXPECT_TRUE(Says(segment.remedies, "packed weights, which kernels are faster with, have no room"));
  EXPECT_TRUE(Says(segment.remedies, "--memory-bytes"));
  EXPECT_TRUE(std::ranges::any_of(segment.misses, [](const ExplainedMiss& miss) {
    return miss.reason == MissReasonText(MissReason::kNoPackRoom) && miss.calls > 0;
  }));
  const auto stats = CallStats(*first, {}, 5'000);
  ASSERT_TRUE(stats.has_value());
  EXPECT_EQ(stats->Value("memory_packed_weights"), 0u);
  uint64_t used = 0;
  for (size_t use = 0; use < kMemoryUses; ++use)
    used += stats->Value("memory_" + std::string(MemoryUseText(static_cast<MemoryUse>(use))));
  EXPECT_LE(used, stats->Value("memory_limit"));

  fleet_->StopCompile();
  RpcClient* second = StartWorker(Flags(kSmall));
  ASSERT_TRUE(Eventually([&] { return Ask(*second, 7); }, 10'000)) << "the store has the plan";
  EXPECT_EQ(Explain(*second).plans.at(0).key, segment.plans[0].key);
  RpcClient* large = StartWorker(Flags());
  ASSERT_TRUE(AnswersByPlan(*large));
  const ExplainedSegment packed = Explain(*large);
  ASSERT_EQ(packed.plans.size(), 1u);
  EXPECT_EQ(packed.plans[0].weights, "");
  EXPECT_FALSE(Says(packed.remedies, "have no room"));
  EXPECT_GE(CallStats(*large, {}, 5'000)->Value("memory_packed_weights"), static_cast<uint64_t>(kInner * kColumns * 4));
}

}  // namespace
}  // namespace kiln
