// A worker answers whatever becomes of the other services, and uses them again when they are back.
#include <signal.h>

#include "tests/end_to_end/fleet_fixture.h"
#include "tests/end_to_end/small_model.h"

namespace kiln {
namespace {

using testing::Eventually;
using testing::SmallModel;

class ServicesTest : public testing::FleetTest {
 protected:
  // Sends one request and compares the answer; true when a plan answered.
  bool Ask(RpcClient& worker, int64_t rows) {
    const RunRequest request{"m", {{"x", model_.Input(rows)}}};
    const auto reply = CallRun(worker, request, 10'000);
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
    if (!reply.has_value()) return false;
    EXPECT_EQ(model_.Difference(rows, reply->outputs.at(0).tensor), "");
    return reply->timing.plan_segments > 0;
  }
  bool AskUntilCompiled(RpcClient& worker) {
    int64_t rows = 0;
    return Eventually([&] { return Ask(worker, 1 + rows++ % 9); });
  }
  void Load(RpcClient& worker) {
    const auto loaded = CallLoad(worker, {"m", model_.WriteTo(directory_)}, 10'000);
    ASSERT_TRUE(loaded.has_value()) << ToString(loaded.error());
  }
  SmallModel model_;
};

TEST_F(ServicesTest, PlansArriveAndServeShapesNeverSeen) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  EXPECT_FALSE(Ask(*worker, 3)) << "the first answer is interpreted";
  ASSERT_TRUE(AskUntilCompiled(*worker));
  for (const int64_t rows : {0, 1, 100, 257}) EXPECT_TRUE(Ask(*worker, rows)) << rows << " rows";
}

TEST_F(ServicesTest, ASecondWorkerIsWarmWithoutTheCompileService) {
  RpcClient* first = StartWorker();
  Load(*first);
  ASSERT_TRUE(AskUntilCompiled(*first));
  fleet_->StopCompile();
  RpcClient* second = StartWorker({"--model", "m=" + model_.WriteTo(directory_)});
  ASSERT_TRUE(Eventually([&] { return Ask(*second, 77); }, 5'000));
  const auto stats = CallStats(*second, {}, 5'000);
  EXPECT_EQ(stats->Value("compiled"), 0u);
  EXPECT_EQ(stats->Value("fetched"), 1u);
}

TEST_F(ServicesTest, WithoutStoreAndCompilerTheWorkerInterpretsAndRemoteUseResumes) {
  fleet_->StopCompile();
  fleet_->StopCache();
  RpcClient* worker = StartWorker();
  Load(*worker);
  for (int64_t i = 0; i < 30; ++i) EXPECT_FALSE(Ask(*worker, 1 + i % 5));
  ASSERT_TRUE(fleet_->StartCache().has_value());
  ASSERT_TRUE(fleet_->StartCompile().has_value());
  EXPECT_TRUE(AskUntilCompiled(*worker));
}

TEST_F(ServicesTest, HungServicesDoNotHoldAnAnswerBack) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  kill(fleet_->cache().pid(), SIGSTOP);
  kill(fleet_->compile().pid(), SIGSTOP);
  for (int64_t i = 0; i < 200; ++i) Ask(*worker, 1 + i % 5);
  // The other kinds of requests, too. worker_service_test says the same of a fetch that hangs until it is let go.
  for (int i = 0; i < 3; ++i) {
    const std::string name = "more" + std::to_string(i);
    const auto loaded = CallLoad(*worker, {name, directory_ + "/model.onnx"}, 10'000);
    EXPECT_TRUE(loaded.has_value()) << ToString(loaded.error());
    const auto stream = CallOpenStream(*worker, {name, {{"x", "y"}}, {}}, 10'000);
    EXPECT_EQ(stream.error().code, ErrorCode::kShapeMismatch)
        << "y has other columns than x, and that is known at once";
    EXPECT_TRUE(CallStats(*worker, {name}, 10'000).has_value());
    EXPECT_TRUE(CallUnload(*worker, {name}, 10'000).has_value());
  }
  kill(fleet_->cache().pid(), SIGCONT);
  kill(fleet_->compile().pid(), SIGCONT);
  EXPECT_TRUE(AskUntilCompiled(*worker));
}

TEST_F(ServicesTest, KilledServicesLoseNothing) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  ASSERT_TRUE(AskUntilCompiled(*worker));
  kill(fleet_->cache().pid(), SIGKILL);
  kill(fleet_->compile().pid(), SIGKILL);
  for (int64_t i = 0; i < 20; ++i) EXPECT_TRUE(Ask(*worker, 1 + i)) << "published plans go on answering";
  fleet_->StopCache();
  ASSERT_TRUE(fleet_->StartCache().has_value());
  RpcClient* second = StartWorker({"--model", "m=" + model_.WriteTo(directory_)});
  EXPECT_TRUE(Eventually([&] { return Ask(*second, 5); }, 10'000)) << "the store kept the plan";
}

TEST_F(ServicesTest, BadRequestsAreAnsweredAndTheWorkerLivesOn) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  const auto code = [&](const RunRequest& request) {
    const auto reply = CallRun(*worker, request, 5'000);
    return reply.has_value() ? ErrorCode::kInternal : reply.error().code;
  };
  EXPECT_EQ(code({"no such model", {}}), ErrorCode::kNotFound);
  EXPECT_EQ(code({"m", {}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"m", {{"y", model_.Input(2)}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"m", {{"x", model_.Input(2)}, {"x", model_.Input(2)}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"m", {{"x", Tensor::Zeros(DType::kF32, {2, 3})}}}), ErrorCode::kShapeMismatch);
  EXPECT_NE(code({"m", {{"x", Tensor::Zeros(DType::kI64, {2, 8})}}}), ErrorCode::kInternal);
  EXPECT_NE(code({"m", {{"x", Tensor::Zeros(DType::kF32, {8})}}}), ErrorCode::kInternal);
  const auto garbage =
      worker->CallSync(static_cast<uint16_t>(WorkerMethod::kRun), {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {}}, 5'000);
  EXPECT_EQ(garbage.error().code, ErrorCode::kMalformed);
  std::ofstream(directory_ + "/damaged.onnx") << "this is no model";
  EXPECT_EQ(CallLoad(*worker, {"d", directory_ + "/damaged.onnx"}, 5'000).error().code, ErrorCode::kMalformed);
  EXPECT_EQ(CallLoad(*worker, {"d", directory_ + "/absent.onnx"}, 5'000).error().code, ErrorCode::kNotFound);
  Ask(*worker, 4);
}

TEST_F(ServicesTest, TensorsTravelBySharedMemoryOnOneHost) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  const auto reply = CallRunShared(*worker, {"m", {{"x", model_.Input(40)}}}, 10'000);
  ASSERT_TRUE(reply.has_value()) << ToString(reply.error());
  EXPECT_EQ(model_.Difference(40, reply->outputs.at(0).tensor), "");
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    EXPECT_FALSE(entry.path().filename().string().starts_with("kiln-" + std::to_string(getpid()))) << "left behind";
}

TEST_F(ServicesTest, ModelsComeAndGo) {
  RpcClient* worker = StartWorker();
  Load(*worker);
  EXPECT_EQ(CallList(*worker, 5'000)->names, std::vector<std::string>{"m"});
  ASSERT_TRUE(AskUntilCompiled(*worker));
  EXPECT_TRUE(CallUnload(*worker, {"m"}, 5'000).has_value());
  EXPECT_TRUE(CallList(*worker, 5'000)->names.empty());
  EXPECT_EQ(CallUnload(*worker, {"m"}, 5'000).error().code, ErrorCode::kNotFound);
  Load(*worker);
  EXPECT_TRUE(Eventually([&] { return Ask(*worker, 6); }, 10'000)) << "the plan is in the store";
}

}  // namespace
}  // namespace kiln
