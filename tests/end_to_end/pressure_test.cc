// More than a worker can do: every request is answered or told that the worker is busy, and nothing is held up
// afterwards.
#include <atomic>

#include "tests/end_to_end/fleet_fixture.h"
#include "tests/end_to_end/small_model.h"

namespace kiln {
namespace {

using testing::Eventually;

class PressureTest : public testing::FleetTest {
 protected:
  RpcClient* Loaded(std::vector<std::string> flags) {
    RpcClient* worker = StartWorker(std::move(flags));
    const auto loaded = CallLoad(*worker, {"m", model_.WriteTo(directory_)}, 10'000);
    EXPECT_TRUE(loaded.has_value()) << ToString(loaded.error());
    return worker;
  }
  testing::SmallModel model_;
};

TEST_F(PressureTest, AThousandRequestsAtOnceAreAnsweredOrTurnedAwayAndNoneIsLost) {
  constexpr int kRequests = 1000;
  RpcClient* worker = Loaded({"--queue", "64"});
  const Message request = Encode(RunRequest{"m", {{"x", model_.Input(50)}}});
  std::atomic<int> answered{0}, busy{0}, other{0}, wrong{0};
  std::mutex mutex;  // Difference is not thread-safe
  for (int i = 0; i < kRequests; ++i)
    worker->CallDetailed(static_cast<uint16_t>(WorkerMethod::kRun), request, 60'000,
                         [&](std::expected<RpcReply, RpcFailure> reply) {
                           if (!reply.has_value()) {
                             const bool told = reply.error().error.code == ErrorCode::kBusy;
                             if (told && reply.error().retry_after_ms == 0) ++wrong;
                             ++(told ? busy : other);
                             return;
                           }
                           RunReply run;
                           const Status decoded = Decode(reply->message, run);
                           std::lock_guard lock(mutex);
                           if (!decoded.has_value() || model_.Difference(50, run.outputs.at(0).tensor) != "") ++wrong;
                           ++answered;
                         });
  ASSERT_TRUE(Eventually([&] { return answered + busy + other == kRequests; }));
  EXPECT_EQ(other, 0);
  EXPECT_EQ(wrong, 0) << "wrong answers, or told to be busy without a time";
  EXPECT_GE(answered, 64) << "what fits into the queue is answered";
  const auto again = CallRun(*worker, {"m", {{"x", model_.Input(3)}}}, 10'000);
  ASSERT_TRUE(again.has_value()) << ToString(again.error());
  EXPECT_EQ(model_.Difference(3, again->outputs.at(0).tensor), "");
}

// Other questions go past a queue that is full of work.
TEST_F(PressureTest, AFullQueueAnswersQuestionsAboutItself) {
  RpcClient* worker = Loaded({"--queue", "32"});
  auto second = cli::ConnectTool(*loop_, fleet_->WorkerEndpoint(0), "", "worker").value();
  const Message request = Encode(RunRequest{"m", {{"x", model_.Input(20'000)}}});
  std::atomic<int> done{0};
  for (int i = 0; i < 64; ++i)
    worker->Call(static_cast<uint16_t>(WorkerMethod::kRun), request, 60'000, [&](Result<RpcReply>) { ++done; });
  for (int i = 0; i < 5; ++i) {
    const auto stats = CallStats(*second, {}, 10'000);
    EXPECT_TRUE(stats.has_value()) << ToString(stats.error());
  }
  EXPECT_TRUE(Eventually([&] { return done == 64; }));
}

}  // namespace
}  // namespace kiln
